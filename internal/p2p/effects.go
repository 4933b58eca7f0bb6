package p2p

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// Effects are the results of state transitions. A transition adds them under the lock, and
// [Messages.Perform] carries them out after the lock is released. The zero value has none.
type Effects struct {
	first effect // most transitions have no other
	more  []effect
}

// The kinds of effects.
const (
	wake    uint8 = iota + 1 // wake the caller
	deliver                  // copy the payload to the buffer of the receive, and wake its caller
	grant                    // grant the offer
	refuse                   // refuse the offer, and wake the caller of the receive
	drop                     // return the credit or the place of a message in the link
	release                  // call release on a goroutine
)

// An effect is an action of one kind, with the fields that the kind needs.
type effect struct {
	kind     uint8
	done     *poll.Signal // of the call that has ended
	follower *follower    // of that call, or nil
	failed   bool         // the call has
	receive  *Receive
	link     *link.Link
	payload  []byte
	offer    uint64
	grant    uint64
	release  func()
	// prefetch is the prefetch of the message, or nil. Its payload no longer counts as buffered by
	// the link after the effect.
	prefetch *prefetch
}

// add appends an effect, which the caller fills in.
func (fx *Effects) add() *effect {
	if fx.first.kind == 0 {
		return &fx.first
	}
	fx.more = append(fx.more, effect{})
	return &fx.more[len(fx.more)-1]
}

func (fx *Effects) addDrop(a *arrival) {
	e := fx.add()
	e.kind, e.link, e.payload, e.prefetch = drop, a.link, a.payload, a.prefetch
}

func (fx *Effects) addGrant(a *arrival, number uint64) {
	e := fx.add()
	e.kind, e.link, e.offer, e.grant = grant, a.link, a.offer, number
}

// Perform carries effects out. Neither m nor its Owner may be locked. Only Perform grants and refuses
// messages and wakes callers.
func (m *Messages) Perform(fx *Effects) {
	if fx.first.kind != 0 {
		m.perform(&fx.first)
	}
	for i := range fx.more {
		m.perform(&fx.more[i])
	}
}

func (m *Messages) perform(e *effect) {
	switch e.kind {
	case deliver:
		if e.receive.err == nil {
			e.receive.buf.fill(e.payload)
		}
		if e.prefetch == nil {
			e.link.Credit().Consumed(wire.Messages, len(e.payload))
		}
	case grant:
		e.link.GrantOffer(wire.OfferGrant{Comm: m.cfg.Comm, ID: e.offer, Grant: e.grant})
	case refuse:
		r := e.receive
		e.link.RefuseOffer(wire.OfferRefuse{Comm: m.cfg.Comm, ID: e.offer, Room: uint64(r.buf.Len()), Type: r.typ})
	case drop:
		if e.payload != nil {
			e.link.Credit().Consumed(wire.Messages, len(e.payload))
		} else {
			e.link.Credit().Dropped()
		}
	case release:
		m.cfg.Owner.Spawn(e.release)
	}
	if e.prefetch != nil {
		e.link.Credit().Unbuffer(len(e.prefetch.payload))
	}
	if e.done != nil {
		e.done.Give()
	}
	switch {
	case e.follower == nil:
	case e.failed: // To name the cause of an error may take a while.
		m.cfg.Owner.Spawn(e.follower.ended)
	default:
		e.follower.ended()
	}
}
