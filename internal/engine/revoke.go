package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A revocation is the report of a peer that the communicator has ended.
type revocation struct {
	link   *link.Link // to the peer
	revoke wire.Revoke
	text   string
}

// revokeLocked ends the communicator on all ranks because an operation on this one has
// failed with err, unless it has ended already.
func (c *Comm) revokeLocked(fx *effects, err error, r wire.Revoke, text string) {
	if c.err != nil {
		return
	}
	r.Comm = c.id
	if r.Cause != wire.CauseMismatch {
		r.Rank = uint32(c.rank)
	}
	fx.revoke, fx.text = &r, text
	c.failLocked(fx, err)
}

// revokeLeftLocked ends the communicator because a rank has left that is needed.
func (c *Comm) revokeLeftLocked(fx *effects, err *PeerError) {
	c.revokeLocked(fx, err, wire.Revoke{Cause: wire.CauseFailed, Peer: uint32(err.Rank)}, err.Error())
}

// mismatchLocked ends the communicator because the call of another rank differs from ours.
func (c *Comm) mismatchLocked(fx *effects, ours wire.Call, peer int, theirs wire.Call) {
	err := &MismatchError{Rank: c.rank, Peer: peer, Ours: ours, Theirs: theirs}
	c.revokeLocked(fx, err, wire.Revoke{
		Cause: wire.CauseMismatch, Rank: uint32(c.rank), Peer: uint32(peer), Ours: ours, Theirs: theirs,
	}, "")
}

// Revoke implements [link.Handler]. A communicator that this node has not made yet ends when it
// is made: only then its ranks are known. What the peer has sent for it returns its credit
// at once, since the peer does not wait for it any more.
func (e *Engine) Revoke(l *link.Link, r wire.Revoke, text string) {
	c := e.comm(l, r.Comm)
	if c == nil {
		return
	}
	h, fx := revocation{l, r, text}, new(effects)
	c.mu.Lock()
	opened := c.opened
	if !opened && !c.isRevokedByLocked(l) {
		c.revokedBy = append(c.revokedBy, h)
		c.discardEarlyLocked(l, fx)
		if r.Cause != wire.CauseClosed { // Messages of a loose communicator still count.
			c.messages.Refuse(&fx.messages, l)
		}
	}
	c.mu.Unlock()
	c.carryOut(fx)
	if opened {
		c.revoked(h)
	}
}

// isRevokedByLocked reports whether a peer has revoked a communicator that this node has not
// made.
func (c *Comm) isRevokedByLocked(l *link.Link) bool {
	return slices.ContainsFunc(c.revokedBy, func(h revocation) bool { return h.link == l })
}

// revoked ends the communicator because of the report of a peer.
func (c *Comm) revoked(h revocation) {
	r, fx := h.revoke, new(effects)
	var err error = &RevokedError{Rank: int(r.Rank), Cause: r.Cause, Peer: int(r.Peer), Text: h.text}
	if r.Cause == wire.CauseMismatch {
		err = &MismatchError{Rank: int(r.Rank), Peer: int(r.Peer), Ours: r.Ours, Theirs: r.Theirs}
	}
	c.mu.Lock()
	rank, member := c.rankOf[h.link.Peer]
	switch {
	case c.loose && member && r.Cause == wire.CauseClosed && int(r.Rank) == rank:
		if c.err == nil {
			c.peerLeftLocked(fx, rank, 0, true)
		}
	case !member || !namesRanks(err, len(c.linkTo)):
		fx.calls = append(fx.calls, breaksProtocol(h.link, fmt.Errorf("communicator %d revoked by an unknown rank", c.id)))
	case c.err == nil:
		c.heard = &h
		c.failLocked(fx, err)
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

// namesRanks reports whether the ranks that a revocation names exist.
func namesRanks(err error, size int) bool {
	switch e := err.(type) {
	case *RevokedError:
		return e.Rank < size && e.Peer < size
	case *MismatchError:
		return e.Rank < size && e.Peer < size
	}
	return true
}

// forwardRevoke repeats the word of another rank before this rank leaves: a rank that
// has not heard it yet would take this one for the reason.
func (c *Comm) forwardRevoke() {
	c.mu.Lock()
	heard := c.heard
	c.heard = nil
	c.mu.Unlock()
	if heard != nil {
		c.tell(func(l *link.Link) { l.Revoke(heard.revoke, heard.text) })
	}
}

// RefuseCollectives lets no collective of this rank begin: the ranks were about to agree
// how collectives are carried out, which has failed with err, and others may have agreed.
// If the reason is that a rank has left, what needs no collective goes on, and the first
// collective that is called ends the communicator for that reason. If a rank has given
// up, or this node is being closed, that is about to end this communicator, too.
func (c *Comm) RefuseCollectives(err error) {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		err = ended.Err
	}
	fx := new(effects)
	c.mu.Lock()
	if p := departed(err); p != nil {
		c.refuses = p
	} else if c.err == nil {
		c.failLocked(fx, err)
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

// departed returns the error of a rank that has left, if that is the reason for err.
func departed(err error) *PeerError {
	if p, ok := errors.AsType[*PeerError](err); ok && p.Left {
		return leftError(p.Rank)
	}
	r, ok := errors.AsType[*RevokedError](err)
	switch {
	case ok && r.Cause == wire.CauseFailed:
		return leftError(r.Peer)
	case ok && r.Cause == wire.CauseClosed:
		return leftError(r.Rank)
	}
	return nil
}

// Cancel ends the communicator because a collective on it, which the other
// ranks wait for, was cancelled before it began, or because a rank has left, maybe this one.
// If the cause is that a rank has failed, the communicator ends on this rank only: the
// others hear of the failure itself, and a revocation would name this rank as the reason.
func (c *Comm) Cancel(cause error) {
	fx, left := new(effects), departed(cause)
	failed, isFailed := errors.AsType[*PeerError](cause)
	c.mu.Lock()
	switch {
	case c.err != nil:
	case isFailed && left == nil:
		c.failLocked(fx, failed)
	case errors.Is(cause, ErrClosed):
		c.revokeLocked(fx, ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedWithin)
	case left != nil:
		c.revokeLeftLocked(fx, left)
	default:
		c.cancelLocked(fx, cause)
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

// CancelIf implements [p2p.Owner]. It calls cancel, if not nil, with the lock held and ends
// the communicator under the same lock.
func (c *Comm) CancelIf(cancel func() bool, cause error) {
	fx := new(effects)
	c.mu.Lock()
	if c.err == nil && (cancel == nil || cancel()) {
		c.cancelLocked(fx, cause)
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

func (c *Comm) cancelLocked(fx *effects, cause error) {
	why := wire.CauseCancelled
	if errors.Is(cause, context.DeadlineExceeded) {
		why = wire.CauseTimeout
	}
	c.revokeLocked(fx, cause, wire.Revoke{Cause: why}, cause.Error())
}
