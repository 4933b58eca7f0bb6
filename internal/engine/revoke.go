package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// An ending is the report of a peer that it has closed or revoked a communicator.
type ending struct {
	link   *link.Link
	closed wire.Closed  // of a peer that has closed
	revoke *wire.Revoke // with text; nil if the peer has closed in good order
	text   string
}

// Closed implements [link.Handler].
func (e *Engine) Closed(l *link.Link, f wire.Closed) {
	if c := e.comm(l, f.Last.Comm); c != nil {
		c.applyReport(ending{link: l, closed: f})
	}
}

// Revoke implements [link.Handler].
func (e *Engine) Revoke(l *link.Link, r wire.Revoke, text string) {
	if c := e.comm(l, r.Comm); c != nil {
		c.applyReport(ending{link: l, revoke: &r, text: text})
	}
}

// applyReport applies the report of a peer. A communicator that this node has not made yet ends when
// it is made: only then its ranks are known. A revocation drops the frames of its peer at once, since
// they hold credit.
func (c *Comm) applyReport(h ending) {
	c.update(func(fx *effects) {
		isRepeated := func(other ending) bool { return other.link == h.link && (other.revoke == nil) == (h.revoke == nil) }
		switch {
		case c.opened:
			c.endedByLocked(fx, &h)
			return
		case slices.ContainsFunc(c.endings, isRepeated):
			return
		}
		c.endings = append(c.endings, h)
		if h.revoke == nil {
			return
		}
		c.discardEarlyLocked(h.link, fx)
		if h.revoke.Cause != wire.CauseClosed { // Messages of a loose communicator are still received.
			c.messages.Refuse(&fx.messages, h.link)
		}
	})
}

// isRevokedByLocked reports whether a peer has revoked a communicator that this node has not
// made.
func (c *Comm) isRevokedByLocked(l *link.Link) bool {
	return slices.ContainsFunc(c.endings, func(h ending) bool { return h.link == l && h.revoke != nil })
}

// endedByLocked ends the communicator, or calls that need a peer, after the report of the peer.
func (c *Comm) endedByLocked(fx *effects, h *ending) {
	rank, isMember := c.rankOf.Of(h.link.Peer)
	r := h.revoke
	switch {
	case !isMember && r != nil && r.Cause == wire.CauseDeadlock:
		c.revokeLocked(fx, deadlockOf(h.text), wire.Revoke{Cause: wire.CauseDeadlock}, h.text)
	case !isMember:
		fx.breaksProtocol(h.link, c.notMember())
	case r != nil && isRemoval(r.Cause) && max(r.Rank, r.Peer) < uint32(len(c.linkTo)): // Nothing is repeated: the other ranks go on.
		c.removedLocked(fx, &RevokedError{Rank: c.member(int(r.Rank)), Cause: r.Cause, Peer: c.member(int(r.Peer))})
	case c.hasEndedLocked():
	case r == nil:
		c.peerLeftLocked(fx, rank, leave{after: h.closed.Last.Seq, closed: h.closed}, false)
	case max(r.Rank, r.Peer) >= uint32(len(c.linkTo)):
		fx.breaksProtocol(h.link, fmt.Errorf("a revocation of communicator %d names the unknown rank %d", c.id, max(r.Rank, r.Peer)))
	case c.draining: // The failure that this rank knows is the cause.
		c.repeatLocked(fx, h)
		c.drainedLocked(fx)
	case c.loose && r.Cause == wire.CauseClosed && int(r.Rank) == rank:
		c.peerLeftLocked(fx, rank, leave{}, true)
	case r.Cause == wire.CauseMismatch:
		c.repeatLocked(fx, h)
		c.failLocked(fx, &MismatchError{Rank: c.member(int(r.Rank)), Peer: c.member(int(r.Peer)), Ours: r.Ours, Theirs: r.Theirs})
	case r.Cause == wire.CauseDeadlock:
		c.repeatLocked(fx, h)
		c.failLocked(fx, deadlockOf(h.text))
	default:
		c.repeatLocked(fx, h)
		err := &RevokedError{Rank: c.member(int(r.Rank)), Cause: r.Cause, Peer: c.member(int(r.Peer)), Text: h.text}
		// The rank of the report has noticed the failure of another one before this rank.
		if r.Cause == wire.CauseFailed && int(r.Peer) != c.rank {
			c.failLocked(fx, &PeerError{Rank: err.Peer, Err: errors.New(h.text)})
			return
		}
		c.failLocked(fx, err)
	}
}

// repeatLocked keeps a revocation for Close, which repeats it. If links are pending, it is repeated
// at once: the rank that has revoked the communicator may not be linked to all others, but the
// negotiation has linked the ranks to a connected graph. A link of the graph may be about to get another connection.
func (c *Comm) repeatLocked(fx *effects, h *ending) {
	c.revocation = h
	for _, l := range c.linkTo {
		if l != nil && l.IsPending() {
			fx.revoke, fx.text, fx.linked = h.revoke, h.text, true
			return
		}
	}
}

// revokeLocked ends the communicator on all ranks, unless it has ended, because an operation on
// this rank has failed with err.
func (c *Comm) revokeLocked(fx *effects, err error, r wire.Revoke, text string) {
	if c.hasEndedLocked() {
		return
	}
	r.Comm = c.id
	if r.Cause != wire.CauseMismatch {
		r.Rank = uint32(c.rank)
	}
	fx.revoke, fx.text = &r, text
	c.failLocked(fx, err)
}

// revokeLeftLocked ends the communicator because it needs a rank that has left.
func (c *Comm) revokeLeftLocked(fx *effects, rank int) {
	c.revokeLocked(fx, c.leftError(rank), wire.Revoke{Cause: wire.CauseLeft, Peer: uint32(rank)}, "")
}

// mismatchLocked ends the communicator because the call of another rank differs from ours.
func (c *Comm) mismatchLocked(fx *effects, ours wire.Call, peer int, theirs wire.Call) {
	err := &MismatchError{Rank: c.member(c.rank), Peer: c.member(peer), Ours: ours, Theirs: theirs}
	c.revokeLocked(fx, err, wire.Revoke{
		Cause: wire.CauseMismatch, Rank: uint32(c.rank), Peer: uint32(peer), Ours: ours, Theirs: theirs,
	}, "")
}

// RefuseCollectives lets no collective of this rank begin: the negotiation of how collectives are
// carried out has failed on this rank with err, and may have succeeded on others. If a rank
// has left, messages go on, and the first collective ends the communicator for that reason.
// Otherwise the communicator ends on this rank. The others are not told: the rank that is the
// reason ends it for them.
func (c *Comm) RefuseCollectives(err error) {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		err = ended.Err
	}
	c.update(func(fx *effects) {
		if rank, has := c.departedRank(err); has {
			c.refuses = &rank
		} else if c.err == nil {
			c.failLocked(fx, err)
		}
	})
}

// Remove tells a peer that its node is not in the next view, for each communicator with it: the cause is CauseRemoved or CauseExcluded.
// The communicators of this node go on: the caller ends them.
func (e *Engine) Remove(l *link.Link, cause wire.Cause) {
	e.each(func(c *Comm) {
		c.update(func(fx *effects) {
			if peer, isMember := c.rankOf.Of(l.Peer); isMember {
				r := wire.Revoke{Comm: c.id, Cause: cause, Rank: uint32(c.rank), Peer: uint32(peer)}
				fx.calls = append(fx.calls, func() { l.Revoke(r, "") })
			}
		})
	})
}

// RemoveSelf ends all communicators because the seed has removed this node from the world, by the programs of others if it is excluded. Text
// describes that. For the other ranks this one has failed for a reason.
func (e *Engine) RemoveSelf(excluded bool, text, reason string) {
	cause := wire.CauseRemoved
	if excluded {
		cause = wire.CauseExcluded
	}
	e.each(func(c *Comm) {
		c.update(func(fx *effects) {
			if !c.opened {
				return
			}
			if !c.hasEndedLocked() {
				fx.revoke, fx.text = &wire.Revoke{Comm: c.id, Cause: wire.CauseFailed, Rank: uint32(c.rank), Peer: uint32(c.rank)}, reason
				fx.linked = true // The others learn of the removal from the seed, too.
			}
			self := c.member(c.rank)
			c.removedLocked(fx, &RevokedError{Rank: self, Cause: cause, Peer: self, Text: text})
		})
	})
}

// removedLocked ends the communicator because this node is not in the next view. If a failure has ended it before, later calls get the removal
// nevertheless: others may have been removed together with this node, or may have left since then.
func (c *Comm) removedLocked(fx *effects, err *RevokedError) {
	if !c.hasEndedLocked() {
		c.failLocked(fx, err)
	}
	if !errors.Is(c.err, ErrClosed) && !IsRemoval(c.err) {
		c.err = err
	}
}

func isRemoval(cause wire.Cause) bool {
	return cause == wire.CauseRemoved || cause == wire.CauseExcluded
}

// IsRemoval reports whether a communicator has ended because this node is not in the next view.
func IsRemoval(cause error) bool {
	r, ok := errors.AsType[*RevokedError](cause)
	return ok && isRemoval(r.Cause)
}

// departed returns a rank that has left, if that is the reason for err.
func departed(err error) (m p2p.Member, has bool) {
	if p, ok := errors.AsType[*PeerError](err); ok && p.Left {
		return p.Rank, true
	}
	switch r, ok := errors.AsType[*RevokedError](err); {
	case ok && r.Cause == wire.CauseLeft:
		return r.Peer, true
	case ok && r.Cause == wire.CauseClosed:
		return r.Rank, true
	}
	return m, false
}

// departedRank is departed for a rank of the communicator. The error may be that of another one.
func (c *Comm) departedRank(err error) (rank int, has bool) {
	m, has := departed(err)
	if !has {
		return 0, false
	}
	return c.RankOf(m)
}

// failedMember returns the failure of a rank of the communicator, if that is the reason for err.
func (c *Comm) failedMember(err error) *PeerError {
	if p, ok := errors.AsType[*PeerError](err); ok && !p.Left {
		if _, isMember := c.RankOf(p.Rank); isMember {
			return p
		}
	}
	return nil
}

// Cancel ends the communicator because a collective of this rank, which the others wait for, was
// cancelled before it began. If the cause is that a rank has failed, the communicator ends on
// this rank only: the others detect the failure themselves, and a revocation would blame this
// rank. The cause may be an error of another communicator, also with other ranks.
func (c *Comm) Cancel(cause error) { c.CancelIf(nil, cause) }

// CancelIf implements [p2p.Owner]. It is Cancel if cancel, which it calls with the lock held, is nil or returns true.
func (c *Comm) CancelIf(cancel func() bool, cause error) {
	c.update(func(fx *effects) {
		if !c.hasEndedLocked() && (cancel == nil || cancel()) {
			c.cancelLocked(fx, cause)
		}
	})
}

func (c *Comm) cancelLocked(fx *effects, cause error) {
	failed := c.failedMember(cause)
	left, isLeft := c.departedRank(cause)
	switch {
	case failed != nil:
		c.failLocked(fx, failed)
	case errors.Is(cause, ErrClosed):
		c.revokeLocked(fx, ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedDuringOperation)
	case isLeft:
		c.revokeLeftLocked(fx, left)
	case errors.Is(cause, context.DeadlineExceeded):
		c.revokeLocked(fx, cause, wire.Revoke{Cause: wire.CauseTimeout}, cause.Error())
	default:
		c.revokeLocked(fx, cause, wire.Revoke{Cause: wire.CauseCancelled}, cause.Error())
	}
}
