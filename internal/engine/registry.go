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

// NewLooseComm is NewComm for ranks that need each other for messages only:
// one that closes with operations under way ends these alone.
func (e *Engine) NewLooseComm(id uint64, rank int, links []*link.Link) *Comm {
	return e.newComm(id, rank, links, true)
}

func (e *Engine) newComm(id uint64, rank int, links []*link.Link, loose bool) *Comm {
	c := e.adopt(id)
	closed, revoked := c.open(rank, links, loose)
	c.messages.Open(links, c.rankOf)
	for peer, seq := range closed {
		c.peerLeft(peer, seq, false)
	}
	for _, h := range revoked {
		c.revoked(h)
	}
	e.mu.RLock()
	isClosed := e.isClosed
	e.mu.RUnlock()
	if isClosed {
		c.end(ErrClosed) // It would wait for others in vain.
	}
	for _, l := range links {
		if err, ended := e.linkEnd(l); ended {
			c.peerChanged(&PeerChange{Peer: l.Peer, Err: err, LinkEnded: true})
		}
	}
	return c
}

// Decline drops a communicator that this node will not make, although others do, with
// all frames that have arrived, or will arrive, for it.
func (e *Engine) Decline(id uint64) {
	c := e.adopt(id)
	c.end(ErrClosed)
	e.forget(c)
}

// adopt returns the communicator with this id, which this node now makes itself,
// even if a peer has begun to use it before.
func (e *Engine) adopt(id uint64) *Comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.comms[id]
	if c == nil {
		c = newComm(e, id, nil)
		e.comms[id] = c
	} else if l := c.creator; l != nil {
		if e.ahead[l]--; e.ahead[l] == 0 {
			delete(e.ahead, l)
		}
		c.creator = nil
	}
	return c
}

// known returns the communicator with this id, or nil. It is for frames that answer
// this node: those make no communicator.
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
	c, exceeded := e.keepComm(l, id)
	if exceeded {
		l.Fail(fmt.Errorf("engine: protocol error: more than %d communicators that this node has not made", commsAheadMax))
	}
	return c
}

func (e *Engine) keepComm(l *link.Link, id uint64) (c *Comm, exceeded bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch c := e.comms[id]; {
	case c != nil:
		return c, false
	case e.closed[id]:
		return nil, false
	case e.ahead[l] >= commsAheadMax:
		return nil, true
	}
	e.ahead[l]++
	c = newComm(e, id, l)
	e.comms[id] = c
	return c, false
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
		c.closedBy[l.Peer] = f.Seq
	}
	c.mu.Unlock()
	switch {
	case !opened:
	case !member:
		c.unexpectedPeer(l)
	default:
		c.peerLeft(l.Peer, f.Seq, false)
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
