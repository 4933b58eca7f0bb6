package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// commsAheadMax is how many communicators a peer may begin to use before
	// this node has made them.
	commsAheadMax = 1024
	// closedKeepMax is how many closed communicators are remembered. What
	// still comes for one was sent before its sender heard of the end.
	closedKeepMax = 1 << 16
)

// NewComm makes the communicator with this id, of which this node is rank.
// Links has the link to each rank; the one to rank itself carries messages to
// oneself. If one of them has ended by now, so has the communicator.
func (e *Engine) NewComm(id uint64, rank int, links []*link.Link) *Comm {
	return e.newComm(id, rank, links, false)
}

// NewLooseComm is NewComm for ranks that need each other for nothing but messages:
// one that closes in the middle of some ends these alone.
func (e *Engine) NewLooseComm(id uint64, rank int, links []*link.Link) *Comm {
	return e.newComm(id, rank, links, true)
}

func (e *Engine) newComm(id uint64, rank int, links []*link.Link, loose bool) *Comm {
	c := e.own(id)
	closed, revoked := c.open(rank, links, loose)
	for peer, seq := range closed {
		c.peerClosed(peer, seq)
	}
	for rank, r := range revoked {
		c.revokedBy(links[rank], r)
	}
	if e.isOver() {
		c.end(ErrClosed) // It would wait for others in vain.
	}
	for _, l := range links {
		if end, ended := e.endOf(l); ended && end == nil {
			c.peerLeft(l.Peer)
		} else if ended {
			c.peerFailed(l.Peer, end)
		}
	}
	return c
}

// Decline drops a communicator that this node was to make with others, and will
// not: what has come for it by now, and what still will.
func (e *Engine) Decline(id uint64) {
	c := e.own(id)
	c.end(ErrClosed)
	e.forget(c)
}

// own returns the communicator with this id, which this node now makes itself,
// even if a peer has begun to use it before.
func (e *Engine) own(id uint64) *Comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.comms[id]
	if c == nil {
		c = newComm(e, id, -1)
		e.comms[id] = c
	} else {
		e.ahead[c.maker]--
		c.maker = -1
	}
	return c
}

func (e *Engine) isOver() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.over
}

// endOf reports whether a link has ended, or is of no use, and why; nil says that the
// peer has left.
func (e *Engine) endOf(l *link.Link) (end error, ended bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	end, ended = e.ended[l]
	if doubt, doubted := e.doubts[l]; doubted && end == nil {
		return doubt, true
	}
	return end, ended
}

// known returns the communicator with this id, or nil. It is for what answers
// this node: that makes no communicator.
func (e *Engine) known(id uint64) *Comm {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.comms[id]
}

// comm returns the communicator with this id. If there is none yet it makes
// one that keeps what arrives until NewComm is called. It returns nil for one
// that was closed, and if the peer has begun to use too many.
func (e *Engine) comm(l *link.Link, id uint64) *Comm {
	if c := e.known(id); c != nil {
		return c
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.comms[id]; c != nil {
		return c
	}
	if e.closed[id] {
		return nil
	}
	if e.ahead[l.Peer] >= commsAheadMax {
		l.Fail(fmt.Errorf("engine: protocol error: more than %d communicators that this node has not made", commsAheadMax))
		return nil
	}
	e.ahead[l.Peer]++
	c := newComm(e, id, l.Peer)
	e.comms[id] = c
	return c
}

// forget drops a closed communicator. Its id is not used again.
func (e *Engine) forget(c *Comm) {
	last := c.lastTraces()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.comms[c.id] != c {
		return // It was closed before.
	}
	for _, t := range last {
		*e.archive.Put() = t
	}
	delete(e.comms, c.id)
	e.closed[c.id] = true
	e.closedIDs = append(e.closedIDs, c.id)
	if len(e.closedIDs) > closedKeepMax {
		delete(e.closed, e.closedIDs[0])
		e.closedIDs = e.closedIDs[1:]
	}
}

// Closed handles the word of a peer that it has closed a communicator.
func (e *Engine) Closed(l *link.Link, f wire.Closed) {
	c := e.comm(l, f.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	_, member := c.rankOf[l.Peer]
	opened := c.opened
	if !opened {
		c.closed[l.Peer] = f.Seq
	}
	c.mu.Unlock()
	switch {
	case !opened:
	case !member:
		c.stranger(l)
	default:
		c.peerClosed(l.Peer, f.Seq)
	}
}

// each calls f for every communicator.
func (e *Engine) each(f func(c *Comm)) {
	e.mu.RLock()
	comms := slices.Collect(maps.Values(e.comms))
	e.mu.RUnlock()
	for _, c := range comms {
		f(c)
	}
}
