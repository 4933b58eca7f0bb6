package linkexec

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Kind is what a frame brings to a collective.
type Kind uint8

// The kinds of frames.
const (
	Step  Kind = iota // a step with its payload
	Offer             // the peer asks for the grant of a step
	Grant             // the peer grants a step
	Probe             // the peer waits for this rank
)

// ArriveLocked takes a frame from a rank, which CarryOut continues. It fails if a peer
// that keeps to the protocol cannot have sent it. Used says that the payload is, or
// will be; its sender gets the credit back otherwise.
func (r *Execution) ArriveLocked(rank int, l *link.Link, kind Kind, s *wire.Step, payload []byte) (e Effect, used bool, err error) {
	if r.stopped {
		return e, false, nil
	}
	i, err := r.admitLocked(rank, kind, s, payload)
	if err != nil {
		return e, false, err
	}
	at, m := &r.slots[i], r.move(i)
	e = Effect{kind: leave, slot: int32(i), channel: int32(s.Channel), move: m, link: l}
	r.busy++
	if at.state&ready == 0 {
		if kind == Step {
			at.frame = r.executor.early.newLocked(l, kind, s, payload)
		}
		return r.nextLocked(&e), true, nil
	}
	switch kind {
	case Step:
		at.state |= done
		e.kind, e.payload = receive, payload
		return e, true, nil
	case Offer:
		r.grantLocked(&e)
		return e, true, nil
	}
	r.deliverLocked(&e)
	return r.nextLocked(&e), true, nil
}

// ArriveEarlyLocked takes a frame that arrived before the operation began. Kept says
// that it holds the payload of a move.
func (r *Execution) ArriveEarlyLocked(rank int, f *Frame) (kept bool, err error) {
	i, err := r.admitLocked(rank, f.Kind, &f.Step, f.payload)
	if err != nil || f.Kind != Step {
		return false, err
	}
	r.slots[i].frame = f
	return true, nil
}

// admitLocked finds the slot of a frame and notes an offer or a grant there.
func (r *Execution) admitLocked(rank int, kind Kind, s *wire.Step, payload []byte) (slot int, err error) {
	g := r.program
	list := g.recvs[rank]
	if kind == Grant {
		list = g.sends[rank]
	}
	if int(s.Channel) >= r.Channels || int(s.Index) >= len(list) {
		return 0, NotInPlanError(s)
	}
	k := int(list[s.Index])
	slot = int(s.Channel)*len(g.moves) + k
	at := &r.slots[slot]
	if !r.expectsLocked(at, kind, &g.moves[k], int(s.Channel), payload) {
		return 0, fmt.Errorf("message %d of channel %d arrived twice, without a request, or with an unexpected length (%d bytes)", s.Index, s.Channel, len(payload))
	}
	switch kind {
	case Offer:
		at.state |= wanted
	case Grant:
		at.state |= granted
		at.grant = s.Grant
	}
	return slot, nil
}

// NotInPlanError is the error of a frame for which the plan of a call has no move.
func NotInPlanError(s *wire.Step) error {
	return fmt.Errorf("message %d of channel %d is not in the plan", s.Index, s.Channel)
}

// expectsLocked reports whether a peer that keeps to the protocol can have sent this
// for a slot. A frame that is not expected would be carried out twice.
func (r *Execution) expectsLocked(at *slot, kind Kind, m *move, ch int, payload []byte) bool {
	switch kind {
	case Grant:
		asked := at.state&wanted != 0 || r.Length(m.A, ch) > r.executor.eagerMax
		return asked && at.state&(granted|done) == 0
	case Offer:
		if r.Length(m.Dst, ch) > r.executor.eagerMax {
			return false
		}
	case Step:
		if len(payload) != r.Length(m.Dst, ch) {
			return false
		}
	}
	return at.state&(wanted|granted|done) == 0 && at.frame == nil
}
