package engine

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A puppet is a peer of an engine that does what the test says, and notes what
// it hears.
type puppet struct {
	t    testing.TB
	rank int
	link *link.Link // its own
	in   chan heard
}

// heard is a frame that has come to a puppet.
type heard struct {
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

// note drops what the test does not look at.
func (p *puppet) note(h heard) {
	select {
	case p.in <- h:
	default:
	}
}

func (p *puppet) Message(l *link.Link, m wire.Message, b []byte) {
	l.Consumed(wire.Messages, len(b))
	p.note(heard{kind: "message", payload: append([]byte{}, b...)})
}

func (p *puppet) Claim(*link.Link, wire.Message) (uint64, bool) { return 0, false }

func (p *puppet) Step(l *link.Link, s wire.Step, b []byte) {
	l.Consumed(wire.Collectives, len(b))
	p.note(heard{kind: "step", step: s, payload: append([]byte{}, b...)})
}

func (p *puppet) Offer(_ *link.Link, o wire.Offer) { p.note(heard{kind: "offer", offer: o}) }
func (p *puppet) OfferGrant(_ *link.Link, g wire.OfferGrant) {
	p.note(heard{kind: "offer grant", grant: g})
}
func (p *puppet) OfferRefuse(_ *link.Link, r wire.OfferRefuse) {
	p.note(heard{kind: "refusal", refuse: r})
}
func (p *puppet) StepOffer(_ *link.Link, s wire.Step) { p.note(heard{kind: "step offer", step: s}) }
func (p *puppet) StepGrant(_ *link.Link, s wire.Step) { p.note(heard{kind: "step grant", step: s}) }
func (p *puppet) Probe(_ *link.Link, q wire.Probe) {
	p.note(heard{kind: "probe", step: wire.Step{Call: q.Call}})
}
func (p *puppet) Where(_ *link.Link, w wire.Where) { p.note(heard{kind: "where", where: w}) }
func (p *puppet) Revoke(_ *link.Link, r wire.Revoke, _ string) {
	p.note(heard{kind: "revoke", revoke: r})
}
func (p *puppet) Failed(*link.Link, wire.Failed, string) {}
func (p *puppet) Closed(_ *link.Link, c wire.Closed)     { p.note(heard{kind: "closed", closed: c}) }
func (p *puppet) Left(*link.Link)                        { p.note(heard{kind: "left"}) }
func (p *puppet) Lost(_ *link.Link, err error)           { p.note(heard{kind: "lost", err: err}) }

// expect returns the next frame of a kind; others are passed over.
func (p *puppet) expect(kind string) heard {
	p.t.Helper()
	for {
		select {
		case h := <-p.in:
			if h.kind == kind {
				return h
			}
		case <-time.After(time.Minute):
			p.t.Fatalf("rank %d does not hear a %s", p.rank, kind)
		}
	}
}

// credit takes credit for a payload, for which it may have to wait.
func (p *puppet) credit(class wire.Class, n int) {
	p.t.Helper()
	until(p.t, "credit", func() bool { return p.link.TakeCredit(class, n) })
}

// onStage makes an engine, which is rank 0 of n, and puppets for the others.
// Lost gets why the engine's links end.
func onStage(t testing.TB, n int) (w *world, puppets []*puppet, lost chan error) {
	t.Helper()
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	lost = make(chan error, 100)
	e := New(Config{})
	w = &world{pool: pool, engines: []*Engine{e}, lost: lost, links: [][]*link.Link{make([]*link.Link, n)}, comms: make([]*Comm, 1)}
	puppets = make([]*puppet, n)
	for rank := 1; rank < n; rank++ {
		ends := overMem(t, 2)
		a, b := connect(t, ends[0], ends[1])
		p := &puppet{t: t, rank: rank, in: make(chan heard, 1<<16)}
		w.links[0][rank] = w.link(t, 0, rank, a)
		if p.link, err = link.New(t.Context(), b, p, link.Config{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.link.Abort)
		puppets[rank] = p
	}
	self := overMem(t, 2)
	a, b := connect(t, self[0], self[1])
	w.links[0][0] = w.link(t, 0, 0, a)
	w.loops = []*link.Link{w.link(t, 0, 0, b)}
	t.Cleanup(func() {
		e.Close()
		for _, l := range append(w.loops, w.links[0]...) {
			l.Abort()
		}
	})
	return w, puppets, lost
}

// workOf is the work that rank 0 of all does.
func (w *world) workOf(ch choice, data []byte) exec.Work { return w.work0(len(w.links[0]), ch, data) }

// work0 is the work that rank 0 of n does.
func (w *world) work0(n int, ch choice, data []byte) exec.Work {
	return (&world{links: make([][]*link.Link, n), pool: w.pool}).work(0, ch, data)
}

// newSink is a place for a payload of which the puppet need not hear.
func newSink(n int) *link.Sink { return &link.Sink{Dst: make([]byte, n), Owner: deaf{}} }

type deaf struct{}

func (deaf) Filled(*link.Sink) {}
