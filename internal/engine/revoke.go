package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// revoke ends the communicator on all ranks, because an operation on this one
// has failed with err.
func (c *Comm) revoke(err error, r wire.Revoke, text string) { c.revokeIf(nil, err, r, text) }

// revokeIf is revoke, unless pending is given and false. It is called with the
// lock held, so that what has just ended well does not end the communicator.
func (c *Comm) revokeIf(pending func() bool, err error, r wire.Revoke, text string) {
	c.mu.Lock()
	if c.err != nil || pending != nil && !pending() {
		c.mu.Unlock()
		return
	}
	c.endAll(err, r, text)
	c.mu.Unlock()
}

// tell tells all other ranks that the communicator has ended.
func (c *Comm) tell(r wire.Revoke, text string) {
	r.Comm = c.id
	if r.Cause != wire.CauseMismatch {
		r.Rank = uint32(c.rank)
	}
	for rank, l := range c.links {
		if rank != c.rank && l != nil {
			l.Revoke(r, text)
		}
	}
}

// Revoke handles the word of a peer that a communicator has ended.
func (e *Engine) Revoke(l *link.Link, r wire.Revoke, text string) {
	c := e.comm(l, r.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	early := !c.opened && r.Cause == wire.CauseClosed
	if early {
		c.revoked[l.Peer] = heardRevoke{r, text} // What that means shows when it is made.
	}
	c.mu.Unlock()
	if !early {
		c.revokedBy(l, heardRevoke{r, text})
	}
}

// revokedBy ends the communicator, as a peer says.
func (c *Comm) revokedBy(l *link.Link, h heardRevoke) {
	r, text := h.revoke, h.text
	var err error = &RevokedError{Rank: int(r.Rank), Cause: r.Cause, Peer: int(r.Peer), Text: text}
	if r.Cause == wire.CauseMismatch {
		err = &MismatchError{Rank: int(r.Rank), Peer: int(r.Peer), Ours: r.Ours, Theirs: r.Theirs}
	}
	c.mu.Lock()
	rank, member := c.rankOf[l.Peer]
	if c.loose && member && r.Cause == wire.CauseClosed && int(r.Rank) == rank {
		c.mu.Unlock()
		c.peerLeft(l.Peer)
		return
	}
	defer c.mu.Unlock()
	switch {
	case c.opened && (!member || !namesRanks(err, len(c.links))):
		l.Fail(fmt.Errorf("engine: protocol error: communicator %d revoked by a rank that there is not", c.id))
	case c.err == nil:
		c.heard = &h
		c.fail(err)
	}
}

// Abstain lets no collective of this rank begin: the ranks were about to agree how, which
// has failed with err, and others may have agreed. If that is because a rank has left, what
// needs no collective goes on, and the first that is called ends the communicator for that
// reason. If it is because a rank has given up, or this node is being closed, that is about
// to end this communicator, too.
func (c *Comm) Abstain(err error) {
	if ended, ok := errors.AsType[*EndedError](err); ok {
		err = ended.Err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := departed(err); p != nil {
		c.abstains = p
	} else if c.err == nil {
		c.fail(err)
	}
}

// departed says that a rank has left, if that is why err is.
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

// A heardRevoke is the word of another rank that the communicator has ended.
type heardRevoke struct {
	revoke wire.Revoke
	text   string
}

// passOn repeats it before this rank leaves: a rank that has not heard it yet
// would take this one for the reason.
func (c *Comm) passOn() {
	c.mu.Lock()
	heard := c.heard
	c.heard = nil
	c.mu.Unlock()
	if heard == nil {
		return
	}
	for rank, l := range c.links {
		if rank != c.rank && l != nil {
			l.Revoke(heard.revoke, heard.text)
		}
	}
}

// mismatch ends the communicator because peer's call does not go with ours.
func (c *Comm) mismatch(ours wire.Call, peer int, theirs wire.Call) {
	err := &MismatchError{Rank: c.rank, Peer: peer, Ours: ours, Theirs: theirs}
	c.revoke(err, wire.Revoke{
		Cause: wire.CauseMismatch, Rank: uint32(c.rank), Peer: uint32(peer), Ours: ours, Theirs: theirs,
	}, "")
}

// Cancel ends the communicator because a collective on it, which the other
// ranks wait for, was cancelled before it began, or because a rank has left, maybe this one.
// If the cause is that a rank has failed, the communicator ends on this rank alone: the
// others hear of the failure itself, and a revocation would name this rank as the reason.
func (c *Comm) Cancel(cause error) {
	p := departed(cause)
	if failed, ok := errors.AsType[*PeerError](cause); ok && p == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.fail(failed)
		}
		return
	}
	switch {
	case errors.Is(cause, ErrClosed):
		c.revoke(ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedWithin)
	case p != nil:
		c.revokeLeft(p)
	default:
		c.cancel(nil, cause)
	}
}

// cancel ends the communicator because a call on it was cancelled, if that is
// pending. Nil means that it is.
func (c *Comm) cancel(pending func() bool, cause error) {
	why := wire.CauseCancelled
	if errors.Is(cause, context.DeadlineExceeded) {
		why = wire.CauseTimeout
	}
	c.revokeIf(pending, cause, wire.Revoke{Cause: why}, cause.Error())
}
