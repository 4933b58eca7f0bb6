package engine

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
)

const (
	// commsAheadMax limits the communicators that a peer has begun to use and this node has
	// not made.
	commsAheadMax = 1024
	// closedKeepMax limits the closed communicators that are remembered, so that late frames
	// for one are dropped.
	closedKeepMax = 1 << 16
)

// NewComm makes the communicator with an ID on this node, which is rank. links has the link to
// each rank; the one to rank itself carries messages to itself. If a link has ended, so has the
// communicator.
func (e *Engine) NewComm(id uint64, rank int, links []*link.Link) *Comm {
	return e.newComm(id, rank, links, nil, false)
}

// NewNamedComm is NewComm for a communicator that serves another one: errors name each rank by its number there.
func (e *Engine) NewNamedComm(id uint64, rank int, links []*link.Link, numbers []int) *Comm {
	return e.newComm(id, rank, links, numbers, false)
}

// NewLooseComm is NewComm for ranks that exchange messages only: a rank that closes it with
// operations under way ends those alone.
func (e *Engine) NewLooseComm(id uint64, rank int, links []*link.Link) *Comm {
	return e.newComm(id, rank, links, nil, true)
}

func (e *Engine) newComm(id uint64, rank int, links []*link.Link, named []int, loose bool) *Comm {
	c := e.adopt(id)
	c.open(rank, links, named, loose)
	e.mu.RLock()
	isClosed := e.isClosed
	e.mu.RUnlock()
	if isClosed {
		c.end(ErrClosed) // Close has not seen it.
	}
	for _, l := range links {
		if ended, err := e.linkEnd(l); ended {
			c.peerChanged(&PeerChange{Peer: l.Peer, Err: err, LinkEnded: true})
		}
	}
	return c
}

// Decline drops a communicator that other ranks make and this node does not, with
// all frames for it, those that still arrive included.
func (e *Engine) Decline(id uint64) {
	c := e.adopt(id)
	c.end(ErrClosed)
	e.forget(c)
}

// adopt returns the communicator with an ID, which counts as made by this node from now on.
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

// known returns the communicator with an ID, or nil. It is for frames that answer
// this node, which create no communicator.
func (e *Engine) known(id uint64) *Comm {
	if c := e.latest.Load(); c != nil && c.id == id {
		return c
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := e.comms[id]
	if c != nil {
		e.latest.Store(c)
	}
	return c
}

// comm returns the communicator with an ID. If there is none it creates one that keeps frames
// until NewComm is called. It returns nil if the communicator was closed, or the peer has begun
// too many.
func (e *Engine) comm(l *link.Link, id uint64) *Comm {
	if c := e.known(id); c != nil {
		return c
	}
	e.mu.Lock()
	c := e.comms[id]
	exceeded := c == nil && !e.closed[id] && e.ahead[l] >= commsAheadMax
	if c == nil && !e.closed[id] && !exceeded {
		e.ahead[l]++
		c = newComm(e, id, l)
		e.comms[id] = c
	}
	e.mu.Unlock()
	if exceeded {
		l.Fail(protocolError(fmt.Errorf("more than %d communicators that this node has not made", commsAheadMax)))
	}
	return c
}

// forget drops a closed communicator. Its ID is not used again.
func (e *Engine) forget(c *Comm) {
	last, counted := c.lastTraces(), make(counters)
	c.addCounters(counted)
	begun := c.callsBegun()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.comms[c.id] != c {
		return // Close was called before.
	}
	e.retired += begun
	for _, t := range last {
		*e.archive.Put() = t
	}
	for _, k := range counted {
		k.Sum.WaitedFor = nil // The next view may give their numbers to other nodes.
		e.past.add(k)
	}
	delete(e.comms, c.id)
	e.latest.Store(nil)
	e.closed[c.id] = true
	e.closedIDs = append(e.closedIDs, c.id)
	if len(e.closedIDs) > closedKeepMax {
		delete(e.closed, e.closedIDs[0])
		e.closedIDs = e.closedIDs[1:]
	}
}

// each calls f for every communicator.
func (e *Engine) each(f func(c *Comm)) {
	for _, c := range e.appendComms(nil) {
		f(c)
	}
}

// appendComms appends all communicators to a list.
func (e *Engine) appendComms(list []*Comm) []*Comm {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.appendCommsLocked(list)
}

func (e *Engine) appendCommsLocked(list []*Comm) []*Comm {
	for _, c := range e.comms {
		list = append(list, c)
	}
	return list
}
