package engine

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A fakePeer is a peer of an engine. The test sends its frames. It records the frames of the
// engine.
type fakePeer struct {
	t    testing.TB
	rank int
	link *link.Link // its own
	in   chan received
}

// received is a frame that a fakePeer has received.
type received struct {
	kind    string
	step    wire.Step
	payload []byte
	revoke  wire.Revoke
	refuse  wire.OfferRefuse
	offer   wire.Offer
	grant   wire.OfferGrant
	where   wire.Where
	closed  wire.Closed
	err     error
}

// note records a frame, or drops it if the test reads none.
func (p *fakePeer) note(h received) {
	select {
	case p.in <- h:
	default:
	}
}

func (p *fakePeer) Message(l *link.Link, m wire.Message, b []byte) {
	l.Credit().Consumed(wire.Messages, len(b))
	p.note(received{kind: "message", payload: append([]byte{}, b...)})
}

func (p *fakePeer) Claim(*link.Link, wire.Message) (uint64, bool) { return 0, false }

func (p *fakePeer) Step(l *link.Link, s wire.Step, b []byte) {
	l.Credit().Consumed(wire.Collectives, len(b))
	p.note(received{kind: "step", step: s, payload: append([]byte{}, b...)})
}

func (p *fakePeer) Offer(_ *link.Link, o wire.Offer) { p.note(received{kind: "offer", offer: o}) }
func (p *fakePeer) OfferGrant(_ *link.Link, g wire.OfferGrant) {
	p.note(received{kind: "offer grant", grant: g})
}
func (p *fakePeer) OfferRefuse(_ *link.Link, r wire.OfferRefuse) {
	p.note(received{kind: "refusal", refuse: r})
}
func (p *fakePeer) StepOffer(_ *link.Link, s wire.Step) {
	p.note(received{kind: "step offer", step: s})
}
func (p *fakePeer) StepGrant(_ *link.Link, s wire.Step) {
	p.note(received{kind: "step grant", step: s})
}
func (p *fakePeer) Query(_ *link.Link, q wire.Query) {
	p.note(received{kind: "query", step: wire.Step{Call: q.Call}})
}
func (p *fakePeer) Where(_ *link.Link, w wire.Where) { p.note(received{kind: "where", where: w}) }
func (p *fakePeer) Revoke(_ *link.Link, r wire.Revoke, _ string) {
	p.note(received{kind: "revoke", revoke: r})
}
func (p *fakePeer) Failed(*link.Link, wire.Failed, string) {}
func (p *fakePeer) Ask(*link.Link, wire.Ask)               {}

func (p *fakePeer) Waits(*link.Link, wire.Waits, []byte) {}

func (p *fakePeer) Reason(*link.Link, wire.Reason, string) {}
func (p *fakePeer) Gone(*link.Link, wire.Gone)             {}
func (p *fakePeer) Leaving(*link.Link, wire.Leaving)       {}
func (p *fakePeer) View(*link.Link, []byte)                {}
func (p *fakePeer) Closed(_ *link.Link, c wire.Closed)     { p.note(received{kind: "closed", closed: c}) }
func (p *fakePeer) Left(*link.Link)                        { p.note(received{kind: "left"}) }
func (p *fakePeer) Lost(_ *link.Link, err error)           { p.note(received{kind: "lost", err: err}) }

// expect returns the next frame of a kind and skips others.
func (p *fakePeer) expect(kind string) received {
	p.t.Helper()
	for {
		select {
		case h := <-p.in:
			if h.kind == kind {
				return h
			}
		case <-time.After(time.Minute):
			p.t.Fatalf("rank %d does not receive a %s", p.rank, kind)
		}
	}
}

// credit waits for the credit for a payload, and takes it.
func (p *fakePeer) credit(class wire.Class, n int) {
	p.t.Helper()
	until(p.t, "credit", func() bool { return p.link.Credit().Take(class, n) })
}

// newFakePeers returns a world with one engine, rank 0 of n, and fake peers for the others. Lost
// gets the errors of the links of the engine.
func newFakePeers(t testing.TB, n int) (w *world, peers []*fakePeer, lost chan error) {
	t.Helper()
	return newFakePeersOver(t, n, overMem, func(c transport.Conn) transport.Conn { return c })
}

// newFakePeersOver is newFakePeers over other transports, with wrap around the connections of the engine to the peers.
func newFakePeersOver(t testing.TB, n int, over listeners, wrap func(transport.Conn) transport.Conn) (w *world, peers []*fakePeer, lost chan error) {
	t.Helper()
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	lost = make(chan error, 100)
	e := New(Config{})
	w = &world{pool: pool, engines: []*Engine{e}, lost: lost, links: [][]*link.Link{make([]*link.Link, n)}, comms: make([]*Comm, 1)}
	peers = make([]*fakePeer, n)
	for rank := 1; rank < n; rank++ {
		ends := over(t, 2)
		a, b := connect(t, ends[0], ends[1])
		p := &fakePeer{t: t, rank: rank, in: make(chan received, 1<<16)}
		w.links[0][rank], p.link = linkPair(t, w.handler(0), p, 0, rank, wrap(a), b)
		t.Cleanup(p.link.Abort)
		peers[rank] = p
	}
	self := over(t, 2)
	a, b := connect(t, self[0], self[1])
	var loop *link.Link
	w.links[0][0], loop = linkPair(t, w.handler(0), w.handler(0), 0, 0, a, b)
	w.loops = []*link.Link{loop}
	t.Cleanup(func() {
		e.Close()
		for _, l := range append(w.loops, w.links[0]...) {
			l.Abort()
		}
	})
	return w, peers, lost
}

// workOf returns the work of rank 0.
func (w *world) workOf(ch choice, data []byte) exec.Work { return w.work0(len(w.links[0]), ch, data) }

// work0 returns the work of rank 0 of n.
func (w *world) work0(n int, ch choice, data []byte) exec.Work {
	return (&world{links: make([][]*link.Link, n), pool: w.pool}).work(0, ch, data)
}

// newSink returns a sink for a payload that nothing waits for.
func newSink(n int) *link.Sink { return &link.Sink{Dst: make([]byte, n), Owner: deaf{}} }

type deaf struct{}

func (deaf) Filled(*link.Sink) {}
