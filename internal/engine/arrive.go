package engine

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// Step implements [link.Handler].
func (e *Engine) Step(l *link.Link, s wire.Step, payload []byte) { e.arrive(l, exec.Step, s, payload) }

// StepOffer implements [link.Handler].
func (e *Engine) StepOffer(l *link.Link, s wire.Step) { e.arrive(l, exec.Offer, s, nil) }

// StepGrant implements [link.Handler].
func (e *Engine) StepGrant(l *link.Link, s wire.Step) { e.arrive(l, exec.Grant, s, nil) }

// arrive takes a frame for a collective.
func (e *Engine) arrive(l *link.Link, kind exec.FrameKind, s wire.Step, payload []byte) {
	if c := e.comm(l, s.Call.Comm); c != nil {
		c.arrive(l, kind, s, payload)
	} else if kind == exec.Step {
		l.Credit().Consumed(wire.Collectives, len(payload))
	}
}

func (c *Comm) arrive(l *link.Link, kind exec.FrameKind, s wire.Step, payload []byte) {
	c.mu.Lock()
	f := c.frames.GetLocked(l, kind, &s, payload)
	r, fx := c.arriveLocked(f, nil)
	c.mu.Unlock()
	if r != nil {
		r.Receive(f)
	}
	c.carryOut(fx)
}

// errNoFrames is the protocol error of a frame for an executor that exchanges none.
var errNoFrames = errors.New("a frame for a collective that needs none")

// arriveLocked passes a frame to the operation that it is for, keeps it until that begins, or
// discards it. If it returns a Receiver, its Receive has to be called next. It adds to fx.
func (c *Comm) arriveLocked(f *exec.Frame, fx *effects) (exec.Receiver, *effects) {
	rank, isMember := c.rankOf.Of(f.Link.Peer)
	s := c.calls.get(f.Step.Call.Seq)
	switch {
	case c.hasEndedLocked(), c.draining && f.Step.Call.Seq > c.seq:
	case c.opened && !isMember:
		fx = fx.orNew()
		fx.breaksProtocol(f.Link, c.notMember())
	case c.opened && c.replacesLocked(f) != nil:
		fx = fx.orNew()
		c.mismatchLocked(fx, c.worldCallLocked(c.replacesLocked(f)), rank, f.Step.Call)
	case !c.opened || f.Step.Call.Seq > c.seq:
		if c.keepLocked(f) {
			return nil, fx
		}
	case s == nil: // forgotten
	case s.Call != f.Step.Call:
		fx = fx.orNew()
		c.mismatchLocked(fx, s.Call, rank, f.Step.Call)
	case s.op != nil && s.op.state == running && f.Kind != exec.Query:
		disposition, err := exec.Discard, errNoFrames
		if s.op.receiver != nil {
			disposition, err = s.op.receiver.ArriveLocked(rank, f)
		}
		switch {
		case err != nil:
			fx = fx.orNew()
			fx.breaksProtocol(f.Link, err)
		case disposition == exec.Receive:
			return s.op.receiver, fx
		case disposition == exec.Hold:
			return nil, fx
		}
	}
	return nil, c.discardLocked(f, fx)
}

// keepLocked keeps a frame for a collective that has not begun. It reports false if the
// frame is not needed, or exceeds the bound of its link.
func (c *Comm) keepLocked(f *exec.Frame) bool {
	seq := f.Step.Call.Seq
	if c.isRevokedByLocked(f.Link) {
		return false
	}
	if f.Kind == exec.Query {
		for k := c.early[seq]; k != nil; k = k.Next {
			if k.Kind == exec.Query && k.Link == f.Link {
				return false
			}
		}
	}
	if f.Kind != exec.Step {
		if f.Counted = f.Link.Credit().Keep(); !f.Counted {
			return false
		}
	}
	f.HoldLocked()
	if c.early == nil {
		c.early = make(map[uint64]*exec.Frame)
	}
	f.Next, c.early[seq] = c.early[seq], f
	return true
}

// discardLocked drops a frame. The credit for a payload is returned by fx, since that may
// send a frame.
func (c *Comm) discardLocked(f *exec.Frame, fx *effects) *effects {
	if f.Kind == exec.Step {
		fx = fx.orNew()
		f.Next, fx.frames = fx.frames, f
		return fx
	}
	f.ReturnCredit()
	f.ReleaseLocked()
	return fx
}

// discardEarlyLocked drops the frames that are kept for collectives that have not begun: those
// of one link, or all if l is nil.
func (c *Comm) discardEarlyLocked(l *link.Link, fx *effects) *effects {
	for seq, f := range c.early {
		var rest *exec.Frame
		for f != nil {
			next := f.Next
			if l == nil || f.Link == l {
				fx = c.discardLocked(f, fx)
			} else {
				f.Next, rest = rest, f
			}
			f = next
		}
		if c.early[seq] = rest; rest == nil {
			delete(c.early, seq)
		}
	}
	return fx
}

// Query implements [link.Handler]. The peer waits for this rank, which answers with its last
// call.
func (e *Engine) Query(l *link.Link, p wire.Query) {
	c := e.comm(l, p.Call.Comm)
	if c == nil {
		return
	}
	c.arrive(l, exec.Query, wire.Step{Call: p.Call}, nil)
	w := wire.Where{Seq: p.Call.Seq}
	c.mu.Lock()
	if s := c.calls.get(c.seq); s != nil {
		w.Last, w.Active, w.For = s.Call, s.op != nil, c.elapsedLocked(s)
	}
	if last := len(c.worlds) - 1; last >= 0 && !w.Active {
		w.Last, w.Active, w.For = c.worldCallLocked(c.worlds[last]), true, uint64(max(1, c.engine.clock.Now()-c.worlds[last].begun))
	}
	w.Last.Comm = c.id
	c.mu.Unlock()
	l.Answer(w)
}

// elapsedLocked returns how long a collective has been under way, or if it has ended, how long
// ago, in nanoseconds; 0 if that is unknown.
func (c *Comm) elapsedLocked(s *call) uint64 {
	if !s.isTraced {
		return 0
	}
	at := s.ended
	if s.op != nil {
		at = s.begun
	}
	return uint64(max(1, c.engine.clock.Now()-at))
}

// An answer is the last answer of a rank to a query.
type answer struct {
	wire.Where
	at    time.Time // zero if there is no answer
	asked time.Time // the first query after the answer; zero if there is none
}

// Where implements [link.Handler]. The answer to a query replaces the earlier ones of its
// rank, for all operations and not only for the one that has asked.
func (e *Engine) Where(l *link.Link, w wire.Where) {
	c := e.known(w.Last.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rank, ok := c.rankOf.Of(l.Peer); ok {
		w.Seq = max(w.Seq, c.answers[rank].Seq)
		c.answers[rank] = answer{Where: w, at: time.Now()}
	}
}

// Message implements [link.Handler].
func (e *Engine) Message(l *link.Link, m wire.Message, payload []byte) {
	c := e.comm(l, m.Comm)
	used, unexpected := false, false
	if c != nil {
		used, unexpected = c.messages.Arrive(l, m, payload)
	}
	if unexpected {
		l.Fail(protocolError(c.notMember()))
	}
	if !used {
		l.Credit().Consumed(wire.Messages, len(payload))
	}
}

// Claim implements [link.Handler].
func (e *Engine) Claim(l *link.Link, m wire.Message) (claim uint64, ok bool) {
	if c := e.known(m.Comm); c != nil {
		return c.messages.Claim(l, m)
	}
	return 0, false
}

// Offer implements [link.Handler].
func (e *Engine) Offer(l *link.Link, o wire.Offer) {
	if o.Size > math.MaxInt {
		l.Fail(protocolError(fmt.Errorf("a message of %d bytes, want at most %d", o.Size, math.MaxInt)))
		return
	}
	if c := e.comm(l, o.Comm); c != nil && c.messages.ArriveOffer(l, o) {
		l.Fail(protocolError(c.notMember()))
	}
}

// OfferGrant implements [link.Handler].
func (e *Engine) OfferGrant(l *link.Link, g wire.OfferGrant) {
	if c := e.known(g.Comm); c != nil {
		c.messages.Granted(l, g)
	}
}

// OfferRefuse implements [link.Handler].
func (e *Engine) OfferRefuse(l *link.Link, r wire.OfferRefuse) {
	if c := e.known(r.Comm); c != nil {
		c.messages.Refused(l, r)
	}
}
