package tcp

import (
	"errors"
	"sync"
)

// Two paired pipes share a socket, one in each direction: the k-th paired pipe of each
// side. Data in one direction then acknowledges data in the other. On separate sockets
// every second short message would cost the reader a packet with an acknowledgement.
//
// The side that dialed the conn decides. It dials a socket for the pipe that it learns of
// first. For the other pipe it sends msgShare. The peer answers msgTake, or, if the first
// pipe has ended meanwhile, msgCannot (msgWant if the pipe is its own), and the pipe gets
// a separate socket. If the pipe is of the side that dialed, that side confirms by
// msgTake that it uses the socket, or by msgCannot that it has abandoned the pipe: so a
// stopped peer never blocks the abandonment.

// pairedBit is set in the numbers of paired pipes.
const pairedBit = 1 << 31

var errShare = errors.New("the peer refers to a shared socket that was not proposed")

// A sharedSocket is the future socket of two paired pipes.
type sharedSocket struct {
	ready chan struct{} // closed when ps is set
	ps    *pipeSocket   // nil if no socket can be shared
	once  sync.Once
}

// set sets the socket and wakes the waiters. Only the first call counts.
func (b *sharedSocket) set(ps *pipeSocket) {
	b.once.Do(func() {
		b.ps = ps
		close(b.ready)
	})
}

// sharedFor returns the sharedSocket of a pipe, and whether it is new. For a pipe that is
// not paired it is always new.
func (c *conn) sharedFor(id uint32) (b *sharedSocket, first bool) {
	if id&pairedBit == 0 {
		return &sharedSocket{ready: make(chan struct{})}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sharedForLocked(id)
}

// sharedForLocked is sharedFor with c.mu held. The result stays registered until one of
// the two pipes ends.
func (c *conn) sharedForLocked(id uint32) (b *sharedSocket, first bool) {
	if b = c.shared[id/2]; b == nil {
		b, first = &sharedSocket{ready: make(chan struct{})}, true
		if c.outgoing[id] != nil || c.incoming[id] != nil {
			c.shared[id/2] = b
		}
	}
	return b, first
}

// removeSharedLocked is called when a pipe has ended. It wakes the waiters for its
// socket, since the pipe may have ended before the socket was dialed.
func (c *conn) removeSharedLocked(id uint32) {
	if b := c.shared[id/2]; b != nil {
		delete(c.shared, id/2)
		b.set(nil)
	}
}

// sharedOfPartner returns the sharedSocket of a pipe if the peer shares the socket of its
// partner; nil if the partner of the pipe has ended. Both sides know a pipe before its socket
// can be shared.
func (c *conn) sharedOfPartner(id uint32) *sharedSocket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := id ^ 1; c.outgoing[other] == nil && c.incoming[other] == nil {
		return nil
	}
	b, _ := c.sharedForLocked(id)
	return b
}

// settleShared sets the socket of a paired pipe on the side that did not dial it; nil if
// the handshake failed.
func (c *conn) settleShared(id uint32, ps *pipeSocket) {
	if id&pairedBit == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := c.sharedForLocked(id)
	select {
	case <-b.ready: // It belongs to a pipe that has ended but is not removed yet.
		c.removeSharedLocked(id)
		b, _ = c.sharedForLocked(id)
	default:
	}
	b.set(ps)
}

// takeHalf waits for a socket and takes its second half. It returns nil if there is none.
func (c *conn) takeHalf(b *sharedSocket) *pipeSocket {
	if b == nil {
		return nil
	}
	select {
	case <-b.ready:
	case <-c.ctx.Done():
		return nil
	}
	if b.ps == nil || !b.ps.share() {
		return nil
	}
	return b.ps
}

// propose proposes the peer half of a socket for a pipe, by msgShare or msgTake, and keeps it
// until the peer has answered.
func (c *conn) propose(kind byte, id uint32, ps *pipeSocket) {
	c.mu.Lock()
	over := c.ended
	if !over {
		c.proposals[id] = ps
	}
	c.mu.Unlock()
	if over {
		c.releaseHalf(id, ps)
		return
	}
	c.send(message{kind: kind, pipe: id})
}

// takeProposal removes and returns the proposal for a pipe, or nil.
func (c *conn) takeProposal(id uint32) *pipeSocket {
	c.mu.Lock()
	defer c.mu.Unlock()
	ps := c.proposals[id]
	delete(c.proposals, id)
	return ps
}

// releaseHalf returns the half of a socket that a pipe does not use.
func (c *conn) releaseHalf(id uint32, ps *pipeSocket) {
	if c.owns(id) {
		ps.endWrite()
	} else {
		ps.endRead()
	}
}

// owns reports whether this side writes to the pipe with this number.
func (c *conn) owns(id uint32) bool { return id%2 == 0 == c.dialed }

// handleTake handles the acceptance of a proposal.
func (c *conn) handleTake(id uint32) error {
	ps := c.takeProposal(id)
	if ps == nil {
		return errShare
	}
	s, r := c.sender(id), c.receiver(id)
	switch {
	case s != nil && s.commit() != nil:
		c.releaseHalf(id, ps)
		c.send(message{kind: msgCannot, pipe: id}) // the peer answers msgDrop
	case s != nil:
		c.send(message{kind: msgTake, pipe: id})
		s.open(ps, nil)
	case r != nil:
		c.deliver(r, ps)
	default:
		c.releaseHalf(id, ps)
	}
	return nil
}

// handleDecline handles the refusal of a proposal: the peer cannot use the socket, or has
// abandoned its pipe.
func (c *conn) handleDecline(id uint32, ps *pipeSocket) {
	c.releaseHalf(id, ps)
	if s := c.sender(id); s != nil {
		c.spawn(func() { c.dialSenderAlone(s) })
	} else if r := c.receiver(id); r != nil {
		c.removeReceiver(r)
		c.send(message{kind: msgDrop, pipe: id})
	}
}

// handleShare handles a proposal of the side that dialed.
func (c *conn) handleShare(id uint32) error {
	if c.dialed || id&pairedBit == 0 {
		return errShare
	}
	if s := c.sender(id); s != nil {
		if s.proposed {
			return errShare
		}
		s.proposed = true
		b := c.sharedOfPartner(id)
		c.spawn(func() { c.shareSender(s, b) })
		return nil
	}
	r, err := c.addReceiver(id)
	if err != nil {
		return err
	}
	b := c.sharedOfPartner(id)
	c.spawn(func() {
		ps := c.takeHalf(b)
		if ps == nil {
			c.removeReceiver(r)
			c.send(message{kind: msgCannot, pipe: id})
			return
		}
		c.propose(msgTake, id, ps)
	})
	return nil
}

// shareSender opens a requested pipe of this side on a shared socket.
func (c *conn) shareSender(s *sender, b *sharedSocket) {
	ps := c.takeHalf(b)
	if ps == nil {
		c.send(message{kind: msgWant, pipe: s.id}) // on a separate socket
		return
	}
	switch s.commit() {
	case nil:
		c.send(message{kind: msgTake, pipe: s.id})
		s.open(ps, nil)
		return
	case errOpenAbandoned:
		c.removeSender(s)
	}
	ps.endWrite()
	c.send(message{kind: msgCannot, pipe: s.id})
}
