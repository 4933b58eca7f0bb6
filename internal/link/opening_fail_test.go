package link

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/transport"
)

// TestBulkLaneDoesNotOpen: pipes that fail to open, or take longer than deadline.Handshake, end the link.
func TestBulkLaneDoesNotOpen(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(p *gatedPair){
		"failure": func(p *gatedPair) { p.ca.gate <- boom },
		"silence": func(*gatedPair) { time.Sleep(deadline.Handshake) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newGatedPair(t)
				x := &Transfer{Grant: 1, Data: make([]byte, 10), Owner: ignore{}}
				p.a.Deliver(x)
				p.ca.awaitOpening(t)
				var err error
				d := took(func() { fail(p); err = <-p.ha.ends })
				if name == "silence" && (d != deadline.Handshake || !strings.Contains(err.Error(), fmt.Sprint("not within ", deadline.Handshake))) ||
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
