package engine

import (
	"errors"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// drainMax bounds how long collectives go on after the failure of a rank that they do not need. They may wait for
// a living rank that has learned of the failure and begins no collective any more.
const drainMax = time.Second

// peerFailedLocked handles the failure of a rank with err, which may name another rank as the cause. No call may
// begin, and messages end. A collective goes on until it needs the rank: a process may end as soon as
// its own part is done, and the rest may have arrived, or may come from other ranks. If the link still works, more of the rank
// may arrive. A collective that cannot go on ends with the first failure, also if it needs a rank that failed later: other ranks end because
// of the first one meanwhile.
func (c *Comm) peerFailedLocked(fx *effects, rank int, err *PeerError, linkEnded bool) {
	switch {
	case c.calls.live == 0:
		if c.err == nil {
			c.failLocked(fx, err)
		}
		return
	case c.err == nil:
		c.draining = true
		c.setErrLocked(fx, err)
		c.messages.Fail(&fx.messages, err, &EndedError{err})
		c.discardEarlyLocked(nil, fx)
		time.AfterFunc(drainMax, func() { c.update(c.drainedLocked) })
	}
	if linkEnded && c.needsLocked(rank, 0) {
		c.revokeFailedLocked(fx)
	}
}

// drainedLocked ends the collectives that go on after a failure.
func (c *Comm) drainedLocked(fx *effects) {
	if c.draining {
		c.failLocked(fx, c.err)
	}
}

// revokeFailedLocked ends the collectives that go on after a failure, on this rank and on all others.
func (c *Comm) revokeFailedLocked(fx *effects) {
	p, ok := errors.AsType[*PeerError](c.err)
	if !ok {
		return
	}
	if rank, known := c.lost(p); known {
		c.revokeLocked(fx, p, wire.Revoke{Cause: wire.CauseFailed, Peer: rank}, p.Err.Error())
		fx.linked = true // The others learn of the failure without this node, too.
	} else {
		c.failLocked(fx, p)
	}
}

// refuseLocked returns the error of a collective that cannot begin. Other ranks may wait for it in collectives that go on after a failure,
// and are told once.
func (c *Comm) refuseLocked() (fx *effects, err error) {
	if p, ok := errors.AsType[*PeerError](c.err); ok && !p.Left && !c.refused {
		if rank, known := c.lost(p); known {
			c.refused, fx = true, &effects{linked: true, text: p.Err.Error()}
			fx.revoke = &wire.Revoke{Comm: c.id, Cause: wire.CauseFailed, Rank: uint32(c.rank), Peer: rank}
		}
	}
	return fx, &EndedError{c.err}
}

// lost returns the rank that others have lost, or will, because of err. known is false if this node has closed the connection itself, so
// that the others do not lose the rank, but this one, and if the error names a node without a rank here.
func (c *Comm) lost(err *PeerError) (rank uint32, known bool) {
	n, known := c.RankOf(err.Rank)
	return uint32(n), known && !errors.Is(err, transport.ErrClosed)
}

// needsLocked reports whether a collective under way, later than after, cannot end without more from a rank.
func (c *Comm) needsLocked(rank int, after uint64) (needed bool) {
	c.calls.each(func(op *Op) { needed = needed || op.call.Seq > after && op.exec.NeedsLocked(rank) })
	return needed
}

// hasEndedLocked reports whether the communicator has ended, and no collective goes on.
func (c *Comm) hasEndedLocked() bool { return c.err != nil && !c.draining }
