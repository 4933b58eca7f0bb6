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
// ranks wait for, was cancelled before it began.
func (c *Comm) Cancel(cause error) { c.cancel(nil, cause) }

// cancel ends the communicator because a call on it was cancelled, if that is
// pending. Nil means that it is.
func (c *Comm) cancel(pending func() bool, cause error) {
	why := wire.CauseCancelled
	if errors.Is(cause, context.DeadlineExceeded) {
		why = wire.CauseTimeout
	}
	c.revokeIf(pending, cause, wire.Revoke{Cause: why}, cause.Error())
}
