package link

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// A gatedConn counts the pipes that its side opens, and holds back those of the bulk lane.
type gatedConn struct {
	transport.Conn
	others  int           // pipes of other lanes; they come first
	waiting chan struct{} // has a value for each pipe that waits
	gate    chan error    // lets a pipe go on, or fail with the error

	mu     sync.Mutex
	opened int
}

func newGatedConn(c transport.Conn, others int) *gatedConn {
	return &gatedConn{Conn: c, others: others, waiting: make(chan struct{}, 16), gate: make(chan error)}
}

func (g *gatedConn) pipes() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

func (g *gatedConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	g.mu.Lock()
	g.opened++
	isBulk := g.opened > g.others
	g.mu.Unlock()
	if isBulk {
		g.waiting <- struct{}{}
		select {
		case err := <-g.gate:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-g.Done():
			return nil, g.Err()
		}
	}
	return g.Conn.OpenPipe(ctx)
}

// awaitOpening waits until a pipe of the bulk lane is being opened.
func (g *gatedConn) awaitOpening(t testing.TB) {
	t.Helper()
	soon(t, "opening of the bulk lane", func() { <-g.waiting })
}

// A gatedPair is two links over gatedConns. The gate of b is open.
type gatedPair struct {
	a, b     *Link
	ca, cb   *gatedConn
	ha, hb   *handler
	detached chan error // of both, if they outlive their connection
}

func newGatedPair(t *testing.T) *gatedPair {
	p := &gatedPair{ha: newHandler(), hb: newHandler()}
	p.conns(t)
	p.a, p.b = start(t, p.ca, p.ha), start(t, p.cb, p.hb)
	return p
}

func (p *gatedPair) conns(t *testing.T) {
	ca, cb := conns(t)
	p.ca, p.cb = newGatedConn(ca, 2), newGatedConn(cb, 2)
	close(p.cb.gate)
}

// newKeptPair returns links with a connection that become pending when it ends.
func newKeptPair(t *testing.T) *gatedPair {
	p := newPendingPair(t)
	p.connect(t)
	return p
}

// newPendingPair returns links of newKeptPair without a connection.
func newPendingPair(t *testing.T) *gatedPair {
	p := &gatedPair{ha: newHandler(), hb: newHandler(), detached: make(chan error, 8)}
	keep := func(_ *Link, _ transport.MemorySharer, _ Purpose, err error) { p.detached <- err }
	for h, l := range map[*handler]**Link{p.ha: &p.a, p.hb: &p.b} {
		*l = newPending(h, Config{Detached: keep}, func() {})
		t.Cleanup((*l).Abort)
	}
	return p
}

// connect gives both links a new connection. Link b proposes it.
func (p *gatedPair) connect(t *testing.T) {
	t.Helper()
	p.conns(t)
	if atB, atA := connect(t, p.b, p.a, p.cb, p.ca, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	for _, l := range []*Link{p.a, p.b} {
		soon(t, "Settled", func() { <-l.Settled() })
	}
}

// awaitPending waits until both links are pending again, and returns the reasons.
func (p *gatedPair) awaitPending(t *testing.T) (reasons [2]error) {
	t.Helper()
	soon(t, "end of the connection", func() {
		for i := range reasons {
			reasons[i] = <-p.detached
		}
		for !p.a.IsPending() || !p.b.IsPending() {
			runtime.Gosched()
		}
	})
	return reasons
}

// TestBulkLaneOpensAtTheFirstTransfer: a side opens the pipes of its bulk lane for its first transfer, and once.
func TestBulkLaneOpensAtTheFirstTransfer(t *testing.T) {
	for name, pipes := range map[string]int{"one connection": 0, "two connections": 3} {
		t.Run(name, func(t *testing.T) {
			x := newApart(t)
			data := 1
			if pipes == 0 {
				data = 2
			}
			ca, cb := newGatedConn(x.ca, data), newGatedConn(x.cb, data)
			if pipes > 0 {
				ca, cb = newGatedConn(x.ba, data), newGatedConn(x.bb, data)
				x.ba, x.bb = ca, cb
				x.start(pipes, pipes)
			} else {
				x.a, x.b = start(t, ca, x.ha), start(t, cb, x.hb)
			}
			close(ca.gate)
			close(cb.gate)
			<-x.b.Settled()
			expect := func(when string, atA, atB int) {
				t.Helper()
				if a, b := ca.pipes(), cb.pipes(); a != atA || b != atB {
					t.Errorf("%s: %d and %d pipes are open, want %d and %d", when, a, b, atA, atB)
				}
			}
			for range 10 {
				x.a.SendStep(wire.Step{}, make([]byte, 100))
			}
			agree(t, x.a, x.b)
			bulk := max(1, pipes)
			expect("before a transfer", data, data)
			for i := range 3 {
				send(x.a, x.b, 100_000, i).wait(t)
				expect("after a transfer of a", data+bulk, data)
			}
			for i := range 3 {
				send(x.b, x.a, 100_000, i).wait(t)
				expect("after transfers of both", data+bulk, data+bulk)
			}
			agree(t, x.a, x.b)
			agree(t, x.b, x.a)
		})
	}
}

// TestBulkLaneOpensForAnnouncements: the pipes open while a grant is awaited.
func TestBulkLaneOpensForAnnouncements(t *testing.T) {
	for name, announce := range map[string]func(l *Link){
		"an offer of a message": func(l *Link) { l.OfferMessage(wire.Offer{ID: 1, Size: 1 << 20}) },
		"an offer of a step":    func(l *Link) { l.OfferStep(wire.Step{}) },
		"OpenBulk":              (*Link).OpenBulk,
	} {
		t.Run(name, func(t *testing.T) {
			p := newGatedPair(t)
			announce(p.a)
			p.ca.awaitOpening(t)
			if p.a.Traffic().Sent <= p.b.Traffic().Received {
				t.Error("nothing is in flight while the bulk lane opens")
			}
			p.ca.gate <- nil
			agree(t, p.a, p.b)
			send(p.a, p.b, 1000, 1).wait(t)
			announce(p.a)
			if n := p.ca.pipes(); n != 3 {
				t.Errorf("%d pipes are open, want 3", n)
			}
		})
	}
}

// TestOpenBulkOfPendingLink: the bulk lane of a pending link opens when it has a connection.
func TestOpenBulkOfPendingLink(t *testing.T) {
	p := newKeptPair(t)
	p.b.CloseIdle()
	p.awaitPending(t)
	p.a.OpenBulk()
	if p.a.IsNeeded() {
		t.Error("OpenBulk needs a connection")
	}
	p.connect(t)
	p.ca.awaitOpening(t)
}

// TestNothingWaitsForTheBulkLane: while the bulk lane of one direction opens, Deliver, Push and polling return, and
// other lanes and the other direction go on.
func TestNothingWaitsForTheBulkLane(t *testing.T) {
	p := newGatedPair(t)
	arrived := make(chan int64, 4)
	p.hb.message = func(m wire.Message, b []byte) { arrived <- m.Tag; p.b.Credit().Consumed(wire.Messages, len(b)) }
	var first *load
	soon(t, "Deliver and Push", func() { first = send(p.a, p.b, 100_000, 1) })
	p.ca.awaitOpening(t)
	second := send(p.a, p.b, 1000, 2)
	for i := range 3 {
		send(p.b, p.a, 100_000, i).wait(t)
	}
	p.a.SendMessage(wire.Message{Tag: 5}, []byte("x"))
	soon(t, "the message", func() { <-arrived })
	soon(t, "polling", func() {
		var v Polling
		p.a.StartPolling(&v)
		for range 100 {
			v.Poll()
		}
		v.Stop(false)
	})
	if first.filled.told() || first.delivered.told() || second.filled.told() {
		t.Fatal("a transfer was sent without a pipe")
	}
	p.ca.gate <- nil
	first.wait(t)
	second.wait(t)
}

// TestRecallWhileTheBulkLaneOpens: a recalled transfer is not sent, and its memory is free at once.
func TestRecallWhileTheBulkLaneOpens(t *testing.T) {
	p := newGatedPair(t)
	s := make(signal)
	x := &Transfer{Grant: p.b.Grant(&Sink{Dst: make([]byte, 10), Owner: s}), Data: make([]byte, 10), Owner: s}
	p.a.Deliver(x)
	p.ca.awaitOpening(t)
	soon(t, "Recall", func() { p.a.Recall(x) })
	clear(x.Data) // for the race detector
	next := send(p.a, p.b, 1000, 2)
	p.ca.gate <- nil
	next.wait(t)
	if s.told() {
		t.Error("a recalled transfer was sent")
	}
}

// TestCloseWithAndWithoutBulkLanes: a goodbye takes a round trip, with every combination of open bulk lanes.
func TestCloseWithAndWithoutBulkLanes(t *testing.T) {
	for _, opened := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		t.Run(fmt.Sprint(opened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ha, hb := newHandler(), newHandler()
				_, a, b := farApart(t, ha, hb, sim.Config{})
				if opened[0] {
					send(a, b, 1000, 1).wait(t)
				}
				if opened[1] {
					send(b, a, 1000, 1).wait(t)
				}
				time.Sleep(time.Second)
				if d := took(func() { a.Close(within(t, time.Minute)) }); d > 40*time.Millisecond {
					t.Errorf("Close took %v, with a delay of 20 ms in each direction", d)
				}
				if err := hb.wait(t); err != errLeft {
					t.Errorf("got %v, want %v", err, errLeft)
				}
				b.Abort()
				ha.quiet(t)
				hb.quiet(t)
			})
			p := newKeptPair(t)
			close(p.ca.gate)
			if opened[0] {
				send(p.a, p.b, 1000, 1).wait(t)
			}
			if opened[1] {
				send(p.b, p.a, 1000, 1).wait(t)
			}
			detach(t, p.a)
			if reasons := p.awaitPending(t); reasons != [2]error{} {
				t.Errorf("the connection ended because of %v, want idleness", reasons)
			}
			p.connect(t)
			send(p.b, p.a, 1000, 1).wait(t)
		})
	}
}

// TestCloseWhileTheBulkLaneOpens: the goodbye of a bulk lane follows its transfers, also if its pipes are not open yet.
func TestCloseWhileTheBulkLaneOpens(t *testing.T) {
	for name, test := range map[string]struct {
		recall, transfer bool
	}{
		"with a transfer": {transfer: true}, "with a recalled transfer": {transfer: true, recall: true}, "without a transfer": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newGatedPair(t)
			x := &load{data: filler(2<<20, 1), dst: newPlace(2 << 20), filled: make(signal), delivered: make(signal)}
			tr := &Transfer{Data: x.data, Owner: x.delivered}
			if test.transfer {
				tr.Grant = p.b.Grant(&Sink{Dst: x.dst.mem, Owner: x.filled})
				p.a.Deliver(tr)
			} else {
				p.a.OpenBulk()
			}
			p.ca.awaitOpening(t)
			closed := make(signal)
			go func() { defer close(closed); p.a.Close(within(t, time.Minute)) }()
			if test.recall {
				p.a.Recall(tr)
			}
			if test.transfer && !test.recall && (closed.told() || p.b.HasLeft()) {
				t.Error("the goodbye was read before the transfer")
			}
			close(p.ca.gate) // A goodbye without transfers does not wait for the pipe.
			closed.wait(t, "Close")
			if err := p.hb.wait(t); err != errLeft {
				t.Errorf("got %v, want %v", err, errLeft)
			}
			if test.transfer && !test.recall {
				x.wait(t)
			}
		})
	}
}

// TestAbortWhileTheBulkLaneOpens: Abort and the end of the peer do not wait for the pipes.
func TestAbortWhileTheBulkLaneOpens(t *testing.T) {
	for name, end := range map[string]func(p *gatedPair){
		"Abort": func(p *gatedPair) { p.a.Abort() },
		"the peer": func(p *gatedPair) {
			p.b.Abort()
			<-p.ha.ends
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newGatedPair(t)
			x := &Transfer{Grant: 1, Data: make([]byte, 10), Owner: ignore{}}
			p.a.Deliver(x)
			p.ca.awaitOpening(t)
			soon(t, name, func() { end(p) })
			soon(t, "Recall", func() { p.a.Recall(x) })
			p.a.Deliver(x)
			soon(t, "Recall", func() { p.a.Recall(x) })
			p.ha.quiet(t)
		})
	}
}

// TestConnectionEndsWhileTheBulkLaneOpens: the transfer goes on over the next connection, with pipes of that one.
func TestConnectionEndsWhileTheBulkLaneOpens(t *testing.T) {
	p := newKeptPair(t)
	x := send(p.a, p.b, 3<<20, 1)
	p.ca.awaitOpening(t)
	if p.a.CloseIdle() {
		t.Error("a link is detached while its bulk lane opens")
	}
	p.cb.Close()
	p.awaitPending(t)
	if !p.a.IsNeeded() {
		t.Error("the link needs no connection for a transfer that waits")
	}
	p.connect(t)
	p.ca.awaitOpening(t)
	p.ca.gate <- nil
	x.wait(t)
	agree(t, p.a, p.b)
}
