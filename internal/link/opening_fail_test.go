package link

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// TestBulkLaneDoesNotOpen: pipes that fail to open, or take longer than peerTimeout, end the link.
func TestBulkLaneDoesNotOpen(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(p *gatedPair){
		"failure": func(p *gatedPair) { p.ca.gate <- boom },
		"silence": func(*gatedPair) { time.Sleep(peerTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newGatedPair(t)
				x := &Transfer{Grant: 1, Data: make([]byte, 10), Owner: ignore{}}
				p.a.Deliver(x)
				p.ca.awaitOpening(t)
				var err error
				d := took(func() { fail(p); err = <-p.ha.ends })
				if name == "silence" && (d != peerTimeout || !strings.Contains(err.Error(), fmt.Sprint("not within ", peerTimeout))) ||
					name == "failure" && (d != 0 || !errors.Is(err, boom)) || !strings.Contains(err.Error(), "open the bulk lane") {
					t.Errorf("after %v: got %v", d, err)
				}
				p.a.Recall(x)
				p.a.Abort()
				p.b.Abort()
			})
		})
	}
}

// TestBulkLaneDoesNotOpenAgain: the first failure breaks the connection, and one on the next connection ends the link. A
// success in between counts. Over TCP, the error of a pipe that cannot be opened is that of a lost peer, while the connection
// stands.
func TestBulkLaneDoesNotOpenAgain(t *testing.T) {
	boom := errors.New("boom")
	for name, reason := range map[string]error{"refused": boom, "like a lost peer": fmt.Errorf("%w: %w", transport.ErrPeerGone, boom)} {
		t.Run(name, func(t *testing.T) { testBulkLaneDoesNotOpenAgain(t, reason, boom) })
	}
}

func testBulkLaneDoesNotOpenAgain(t *testing.T, reason, boom error) {
	p := newKeptPair(t)
	fails := func() {
		t.Helper()
		p.ca.awaitOpening(t)
		p.ca.gate <- reason
		if reasons := p.awaitPending(t); !errors.Is(errors.Join(reasons[:]...), boom) {
			t.Fatalf("the connection ended because of %v, want %v", reasons, boom)
		}
		p.connect(t)
	}
	x := send(p.a, p.b, 1000, 1)
	fails()
	p.ca.awaitOpening(t)
	p.ca.gate <- nil
	x.wait(t)
	p.cb.Close()
	p.awaitPending(t)
	p.connect(t)
	y := &Transfer{Grant: p.b.Grant(&Sink{Dst: make([]byte, 10), Owner: ignore{}}), Data: make([]byte, 10), Owner: ignore{}}
	p.a.Deliver(y)
	fails()
	p.ca.awaitOpening(t)
	p.ca.gate <- reason
	if err := p.ha.wait(t); !errors.Is(err, boom) || !strings.Contains(err.Error(), "open the bulk lane") || !strings.Contains(err.Error(), "in a row") {
		t.Errorf("the link ends with %v, want %v", err, boom)
	}
	p.a.Recall(y)
}

// TestGoodbyeOfUnopenedLaneIsFinal: a pipe of a bulk lane that has ended without one is a protocol error, and so is such
// a goodbye of a lane with pipes, or a second one.
func TestGoodbyeOfUnopenedLaneIsFinal(t *testing.T) {
	y := wire.Bye{Lane: wire.Bulk}
	for name, test := range map[string]struct {
		does func(t *testing.T, l *Link, c transport.Conn, control transport.Sender)
		want string
	}{
		"a pipe afterwards": {func(t *testing.T, _ *Link, c transport.Conn, control transport.Sender) {
			answers := lane(t, c, wire.Control)
			control.Write(y.Append(nil, wire.TypeBye))
			ack := make([]byte, len(confirmation())+2)
			if _, err := io.ReadFull(answers, ack); err != nil || wire.Type(ack[len(ack)-2]) != wire.TypeByeAck || wire.Lane(ack[len(ack)-1]) != wire.Bulk {
				t.Errorf("got %x (%v), want the acknowledgement of the bulk lane", ack, err)
			}
			open(t, c, wire.Bulk)
		}, "a bulk lane, which it has ended without a pipe"},
		"a pipe before": {func(t *testing.T, l *Link, c transport.Conn, control transport.Sender) {
			open(t, c, wire.Bulk)
			soon(t, "the pipe", func() {
				for l.at.Load().named.bulkPipes() == 0 {
					runtime.Gosched()
				}
			})
			control.Write(y.Append(nil, wire.TypeBye))
		}, "goodbye of an unopened bulk lane, which has 1 pipes"},
		"twice": {func(_ *testing.T, _ *Link, _ transport.Conn, control transport.Sender) {
			control.Write(y.Append(y.Append(nil, wire.TypeBye), wire.TypeBye))
		}, "a second goodbye of the bulk lane"},
	} {
		t.Run(name, func(t *testing.T) {
			ca, cb := conns(t)
			h := newHandler()
			l := start(t, ca, h)
			test.does(t, l, cb, open(t, cb, wire.Control))
			if err := h.wait(t); !strings.Contains(err.Error(), "protocol error") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a protocol error with %q", err, test.want)
			}
		})
	}
}
