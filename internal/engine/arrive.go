package engine

import (
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// Step handles a step with its payload.
func (e *Engine) Step(l *link.Link, s wire.Step, payload []byte) {
	if c := e.comm(l, s.Call.Comm); c == nil || !c.arrive(l, linkexec.Step, &s, payload) {
		l.Consumed(wire.Collectives, len(payload))
	}
}

// StepOffer handles a request to grant a step.
func (e *Engine) StepOffer(l *link.Link, s wire.Step) {
	if c := e.comm(l, s.Call.Comm); c != nil {
		c.arrive(l, linkexec.Offer, &s, nil)
	}
}

// StepGrant handles the grant of a step.
func (e *Engine) StepGrant(l *link.Link, s wire.Step) {
	if c := e.comm(l, s.Call.Comm); c != nil {
		c.arrive(l, linkexec.Grant, &s, nil)
	}
}

// A transition is what the arrival of a frame has led to.
type transition struct {
	used   bool                // the payload is, or will be, used
	run    *linkexec.Execution // continues with effect, if not nil
	effect linkexec.Effect
	err    error    // why the peer breaks the protocol
	fx     *effects // of the communicator
}

// arrive takes a frame for a collective. It reports whether the payload is used: if not,
// the peer has to get its credit back.
func (c *Comm) arrive(l *link.Link, kind linkexec.Kind, s *wire.Step, payload []byte) bool {
	var t transition
	c.mu.Lock()
	c.arriveLocked(&t, l, kind, s, payload)
	c.mu.Unlock()
	switch {
	case t.err != nil:
		breaksProtocol(l, t.err)()
	case t.run != nil:
		t.run.CarryOut(t.effect)
	case t.fx != nil:
		c.carryOut(t.fx)
	}
	return t.used
}

func (c *Comm) arriveLocked(t *transition, l *link.Link, kind linkexec.Kind, s *wire.Step, payload []byte) {
	rank, member := c.rankOf[l.Peer]
	switch {
	case c.err != nil:
		return
	case c.opened && !member:
		t.fx = &effects{unexpected: []*link.Link{l}}
		return
	case !c.opened || s.Call.Seq > c.seq:
		t.used = c.links.KeepLocked(l, kind, s, payload)
		return
	}
	ours, op := c.callLocked(s.Call.Seq)
	if ours != s.Call && ours.Seq != 0 {
		t.fx = new(effects)
		c.mismatchLocked(t.fx, ours, &call{rank, s.Call})
		return
	}
	if op == nil || op.state != running || kind == linkexec.Probe {
		return
	}
	run, ok := op.exec.(*linkexec.Execution)
	if !ok {
		t.err = linkexec.NotInPlanError(s)
		return
	}
	t.effect, t.used, t.err = run.ArriveLocked(rank, l, kind, s, payload)
	if t.used {
		t.run = run
	}
}

// callLocked returns what this rank called as the collective with a sequence number,
// and the operation if it has not ended. The call is zero if it is forgotten.
func (c *Comm) callLocked(seq uint64) (wire.Call, *Op) {
	if op := c.ops.get(seq); op != nil {
		return op.call, op
	}
	return c.past.get(seq), nil
}

// A call is what another rank has called.
type call struct {
	rank int
	call wire.Call
}

// admitEarlyLocked hands an operation that begins the frames that have arrived for it.
// It returns the first call that differs from this rank's, if any, and effects unless
// there are none.
func (c *Comm) admitEarlyLocked(op *Op, list *linkexec.Frame) (theirs *call, fx *effects) {
	for f := list; f != nil; {
		next := f.Next
		kept, err := false, error(nil)
		rank, member := c.rankOf[f.Link.Peer]
		switch {
		case !member:
			fx = fx.orNew()
			fx.unexpected = append(fx.unexpected, f.Link)
		case theirs != nil:
		case f.Step.Call != op.call:
			theirs = &call{rank, f.Step.Call}
		default:
			kept, err = op.admitEarlyLocked(rank, f)
		}
		if err != nil {
			fx = fx.orNew()
			fx.calls = append(fx.calls, breaksProtocol(f.Link, err))
		}
		if !kept && !c.links.DiscardLocked(f) {
			fx = fx.orNew()
			f.Next, fx.frames = fx.frames, f
		}
		f = next
	}
	return theirs, fx
}

// breaksProtocol returns a function that ends a link because of what its peer has sent.
func breaksProtocol(l *link.Link, err error) func() {
	return func() { l.Fail(fmt.Errorf("engine: protocol error: %w", err)) }
}

// admitEarlyLocked reports whether the operation keeps the frame.
func (op *Op) admitEarlyLocked(rank int, f *linkexec.Frame) (kept bool, err error) {
	if f.Kind == linkexec.Probe {
		return false, nil
	}
	if run, ok := op.exec.(*linkexec.Execution); ok {
		return run.ArriveEarlyLocked(rank, f)
	}
	return false, linkexec.NotInPlanError(&f.Step)
}

// Probe handles the word of a peer that it is waiting for this rank, and
// answers where this rank is.
func (e *Engine) Probe(l *link.Link, p wire.Probe) {
	c := e.comm(l, p.Call.Comm)
	if c == nil {
		return
	}
	c.arrive(l, linkexec.Probe, &wire.Step{Call: p.Call}, nil)
	w := wire.Where{Seq: p.Call.Seq}
	c.mu.Lock()
	if c.seq > 0 {
		var op *Op
		w.Last, op = c.callLocked(c.seq)
		w.Active, w.For = op != nil, c.sinceLocked(c.seq, op)
	}
	w.Last.Comm = c.id
	c.mu.Unlock()
	l.Answer(w)
}

// sinceLocked returns how long a call has been under way, or if it is not, how long ago
// it ended, in nanoseconds; 0 if that is not recorded.
func (c *Comm) sinceLocked(seq uint64, op *Op) uint64 {
	at, known := c.past.ended(seq)
	if op != nil {
		at, known = op.begun, c.about != nil
	}
	if !known {
		return 0
	}
	return uint64(max(1, c.engine.clock.Now()-at))
}

// An answer is what a rank has said to a probe, and when.
type answer struct {
	wire.Where
	at    time.Time // zero if it has said nothing yet
	asked time.Time // the first time since then; zero if it was not
}

// Where handles the answer to a probe. It is the last word of its rank, so that
// it counts for all operations that have an answer, not only for the one that asks.
func (e *Engine) Where(l *link.Link, w wire.Where) {
	c := e.known(w.Last.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rank, ok := c.rankOf[l.Peer]; ok {
		w.Seq = max(w.Seq, c.answers[rank].Seq)
		c.answers[rank] = answer{Where: w, at: time.Now()}
	}
}

// Message handles a message with its payload.
func (e *Engine) Message(l *link.Link, m wire.Message, payload []byte) {
	c := e.comm(l, m.Comm)
	used, unexpected := false, false
	if c != nil {
		used, unexpected = c.messages.Arrive(l, m, payload)
	}
	if unexpected {
		c.unexpectedPeer(l)
	}
	if !used {
		l.Consumed(wire.Messages, len(payload))
	}
}

// Claim implements [link.Handler].
func (e *Engine) Claim(l *link.Link, m wire.Message) (claim uint64, ok bool) {
	if c := e.known(m.Comm); c != nil {
		return c.messages.Claim(l, m)
	}
	return 0, false
}

// Offer handles the announcement of a message.
func (e *Engine) Offer(l *link.Link, o wire.Offer) {
	if o.Size > math.MaxInt {
		l.Fail(fmt.Errorf("engine: protocol error: a message of %d bytes, want at most %d", o.Size, math.MaxInt))
		return
	}
	if c := e.comm(l, o.Comm); c != nil && c.messages.ArriveOffer(l, o) {
		c.unexpectedPeer(l)
	}
}

// OfferGrant sends the payload that a peer asks for.
func (e *Engine) OfferGrant(l *link.Link, g wire.OfferGrant) {
	if c := e.known(g.Comm); c != nil {
		c.messages.Granted(l, g)
	}
}

// OfferRefuse ends a message that its receiver has refused.
func (e *Engine) OfferRefuse(l *link.Link, r wire.OfferRefuse) {
	if c := e.known(r.Comm); c != nil {
		c.messages.Refused(l, r)
	}
}
