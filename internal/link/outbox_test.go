package link

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A conn is a connection that replaces its senders as they are opened: the control lane first,
// then data, then bulk.
type conn struct {
	transport.Conn
	opened int
	lasts  bool
	sender func(lane wire.Lane, s transport.Sender) transport.Sender
}

func (c *conn) Capabilities() transport.Capabilities { return transport.Capabilities{Lasting: c.lasts} }

func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := c.Conn.OpenPipe(ctx)
	if err == nil {
		s = c.sender(wire.Lane(c.opened), s)
		c.opened++
	}
	return s, err
}

// with wraps the senders of both ends by f.
func with(f func(lane wire.Lane, s transport.Sender) transport.Sender) func(a, b transport.Conn) (transport.Conn, transport.Conn) {
	return func(a, b transport.Conn) (transport.Conn, transport.Conn) {
		return &conn{Conn: a, sender: f}, &conn{Conn: b, sender: f}
	}
}

// A chopper splits writes into small pieces, and has no TryWriter.
type chopper struct {
	transport.Sender
	rng  *rand.Rand
	most int // bytes of a piece
}

func (c *chopper) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := c.Sender.Write(p[n:min(len(p), n+1+c.rng.IntN(c.most))])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func chop(most int) func(lane wire.Lane, s transport.Sender) transport.Sender {
	return func(lane wire.Lane, s transport.Sender) transport.Sender {
		return &chopper{s, rand.New(rand.NewPCG(1, uint64(lane))), most}
	}
}

// A blocker blocks writes until it is open, and signals the first write.
type blocker struct {
	transport.Sender
	blocked, open chan struct{}
	once          sync.Once
}

func (g *blocker) Write(p []byte) (int, error) {
	g.once.Do(func() { close(g.blocked) })
	<-g.open
	return g.Sender.Write(p)
}

// A breaker fails after left bytes.
type breaker struct {
	transport.Sender
	left int
	err  error
}

func (b *breaker) Write(p []byte) (int, error) {
	n, err := b.Sender.Write(p[:min(len(p), b.left)])
	if b.left -= n; err == nil && n < len(p) {
		err = b.err
	}
	return n, err
}

func TestOutboxKeepsOrderBehindABlockedWrite(t *testing.T) {
	for name, sender := range map[string]func(wire.Lane, transport.Sender) transport.Sender{
		"in pieces": chop(50),
		"unchanged": func(_ wire.Lane, s transport.Sender) transport.Sender { return s },
	} {
		t.Run(name, func(t *testing.T) {
			const senders, each = 4, 500
			ha, hb := newHandler(), newHandler()
			var next [senders]uint64
			done := make(chan struct{})
			left := senders * each
			hb.revoke = func(r wire.Revoke, text string) {
				if r.Comm != next[r.Rank] || text != strings.Repeat("y", int(r.Comm%97)) {
					t.Errorf("sender %d: got frame %d with %d bytes of text, want frame %d", r.Rank, r.Comm, len(text), next[r.Rank])
				}
				next[r.Rank]++
				if left--; left == 0 {
					close(done)
				}
			}
			a, _ := pair(t, ha, hb, with(sender))
			for s := range senders {
				go func() {
					for i := range uint64(each) {
						a.Revoke(wire.Revoke{Comm: i, Rank: uint32(s), Cause: wire.CauseFailed}, strings.Repeat("y", int(i%97)))
					}
				}()
			}
			soon(t, "the last frame", func() { <-done })
		})
	}
}

// TestSendingNeverBlocks sends on a control lane with blocking writes.
func TestSendingNeverBlocks(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	got := make(chan string, 1000)
	hb.failed = func(_ wire.Failed, text string) { got <- text }
	open := make(chan struct{})
	a, b := pair(t, ha, hb, with(func(_ wire.Lane, s transport.Sender) transport.Sender {
		return &blocker{Sender: s, blocked: make(chan struct{}), open: open}
	}))
	soon(t, "Failed", func() {
		for range 1000 {
			a.Failed(wire.Failed{}, "text")
		}
		id := b.Grant(&Sink{Dst: make([]byte, 10), Owner: ignore{}})
		a.Deliver(&Transfer{Grant: id, Data: make([]byte, 10), Owner: ignore{}})
	})
	close(open)
	for i := range 1000 {
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Fatalf("%d frames have arrived", i)
		}
	}
}

// TestAnswersAreBounded: a peer sends requests and does not read the answers.
func TestAnswersAreBounded(t *testing.T) {
	ca, cb := conns(t)
	g := &blocker{blocked: make(chan struct{}), open: make(chan struct{})}
	a := start(t, &conn{Conn: ca, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
		if lane != wire.Control {
			return s
		}
		g.Sender = s
		return g
	}}, newHandler())
	s := open(t, cb, wire.Control)
	var ping []byte
	for range 1000 {
		p := wire.Ping{}
		ping = p.Append(ping, wire.TypePing)
	}
	for range 200 {
		if _, err := s.Write(ping); err != nil {
			t.Fatal(err)
		}
	}
	heard := func() bool { return a.Heard() >= 200_000 }
	for end := time.Now().Add(10 * time.Second); !heard() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	a.exchange().control.mu.Lock()
	n := a.exchange().control.out.Waiting()
	a.exchange().control.mu.Unlock()
	if n == 0 || n > answersMax+wire.FrameSizeMax {
		t.Errorf("%d bytes of answers are pending, want more than 0 and at most %d", n, answersMax)
	}
	close(g.open)
}

func TestFailedWriteEndsTheLink(t *testing.T) {
	boom := errors.New("boom")
	for lane := range wire.Lanes {
		for _, after := range []int{0, 3, wire.PreambleSize, wire.PreambleSize + 1, 100} {
			ha, hb := newHandler(), newHandler()
			ca, cb := conns(t)
			b := start(t, cb, hb) // The start would fail after the end of the other side.
			a := start(t, &conn{Conn: ca, sender: func(l wire.Lane, s transport.Sender) transport.Sender {
				if l != lane {
					return s
				}
				return &breaker{s, after, boom}
			}}, ha)
			for range 10 {
				a.Failed(wire.Failed{}, "x")
				a.SendMessage(wire.Message{}, make([]byte, 10))
			}
			tr := &Transfer{Grant: b.Grant(&Sink{Dst: make([]byte, 1000), Owner: ignore{}}), Data: make([]byte, 1000), Owner: ignore{}}
			a.Deliver(tr)
			if err := ha.wait(t); !errors.Is(err, boom) || !strings.Contains(err.Error(), lane.String()) {
				t.Errorf("%v lane, after %d bytes: got %v, want the lane and %v", lane, after, err, boom)
			}
			soon(t, "Recall", func() { a.Recall(tr) })
			if err := hb.wait(t); !errors.Is(err, transport.ErrPeerClosed) {
				t.Errorf("%v lane, after %d bytes: the peer got %v, want %v", lane, after, err, transport.ErrPeerClosed)
			}
			a.Abort()
			b.Abort()
			ha.quiet(t)
			hb.quiet(t)
		}
	}
}

// A miscounter returns a wrong number of bytes.
type miscounter struct {
	transport.Sender
	wrong func(n int) int
}

func (m *miscounter) Write(p []byte) (int, error) {
	n, err := m.Sender.Write(p)
	return m.wrong(n), err
}

// TestWrongCountEndsTheLink: the error names the pipe of the transport.
func TestWrongCountEndsTheLink(t *testing.T) {
	for _, lane := range []wire.Lane{wire.Data, wire.Bulk} {
		for name, wrong := range map[string]func(n int) int{
			"too many": func(n int) int { return n + 1 }, "negative": func(int) int { return -1 }, "none": func(int) int { return 0 },
		} {
			h := newHandler()
			ca, cb := conns(t)
			b := start(t, cb, newHandler())
			a := start(t, &conn{Conn: ca, sender: func(l wire.Lane, s transport.Sender) transport.Sender {
				if l != lane {
					return s
				}
				return &miscounter{s, wrong}
			}}, h)
			a.SendMessage(wire.Message{}, make([]byte, 10))
			a.Deliver(&Transfer{Grant: b.Grant(&Sink{Dst: make([]byte, 1000), Owner: ignore{}}), Data: make([]byte, 1000), Owner: ignore{}})
			if err := h.wait(t); !strings.Contains(err.Error(), "the transport has a fault: Write of *link.miscounter returned the number") {
				t.Errorf("%v lane, %s: got %v", lane, name, err)
			}
			a.Abort()
			b.Abort()
		}
	}
}

// open opens the pipe of a lane without a Link.
func open(t testing.TB, c transport.Conn, lane wire.Lane) transport.Sender {
	t.Helper()
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(wire.Preamble{Lane: lane}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	return s
}

// A discarder is a pipe that takes all frames.
type discarder struct{ transport.Sender }

func (discarder) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: discarder{}}
}

func (discarder) TryWrite([]byte) bool { return true }

// BenchmarkOutbox is the cost of a message for the goroutine that sends it, without the transport.
func BenchmarkOutbox(b *testing.B) {
	l := NewCommon(newHandler(), Config{}, nil).NewPending(0)
	at := &path{of: &attachment{link: l}, can: transport.Capabilities{Lasting: true}}
	l.exchange().data.open(at, discarder{}, nil)
	p := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		l.SendStep(wire.Step{}, p)
	}
}
