package tcp

import (
	"errors"
	"sync"
)

// Two pipes that are paired share a socket, one each way: the k-th such pipe that
// one side opens and the k-th that the other one does. What goes one way then
// acknowledges what has come the other way. With sockets of their own every second
// short message would cost an acknowledgement, a packet that whoever reads has to
// send before he goes on.
//
// The side that dials decides, as it learns of both pipes. For the first of the two
// it dials. For the second it says that it shares (msgShare); the peer takes that
// (msgTake), or cannot if the first pipe has just ended (msgCannot, or msgWant for a
// pipe of its own): then the second has a socket of its own. If the pipe is of the
// side that dials, that says in turn that it uses it (msgTake), or that nobody wants
// it any more (msgCannot): a peer that stands still must not hold up who gives up.

// pairedBit is set in the number of a pipe that is paired.
const pairedBit = 1 << 31

var errShare = errors.New("it speaks of a socket for two pipes that nobody has offered")

// A berth is the socket of two pipes, once it is there.
type sharedSocket struct {
	ready chan struct{} // closed when ps is known
	ps    *pipeSocket   // nil if there is none after all
	once  sync.Once
}

// settle says what the socket is. The first word counts.
func (b *sharedSocket) set(ps *pipeSocket) {
	b.once.Do(func() {
		b.ps = ps
		close(b.ready)
	})
}

// berth is that of a pipe, and reports whether it is new. A pipe that is not paired
// always has a new one.
func (c *conn) sharedFor(id uint32) (b *sharedSocket, first bool) {
	if id&pairedBit == 0 {
		return &sharedSocket{ready: make(chan struct{})}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sharedForLocked(id)
}

// berthHeld is berth for one who holds the lock. It is kept until one of the two
// pipes ends.
func (c *conn) sharedForLocked(id uint32) (b *sharedSocket, first bool) {
	if b = c.shared[id/2]; b == nil {
		b, first = &sharedSocket{ready: make(chan struct{})}, true
		if c.outgoing[id] != nil || c.incoming[id] != nil {
			c.shared[id/2] = b
		}
	}
	return b, first
}

// unberth is called with the lock held when a pipe has ended. Who waits for its
// socket waits no longer: that may have gone before it came.
func (c *conn) removeSharedLocked(id uint32) {
	if b := c.shared[id/2]; b != nil {
		delete(c.shared, id/2)
		b.set(nil)
	}
}

// berthBeside is that of a pipe that the peer says shares the socket of another one;
// nil if that has ended. Both sides know of a pipe before its socket can be shared.
func (c *conn) sharedOfPartner(id uint32) *sharedSocket {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := id ^ 1; c.outgoing[other] == nil && c.incoming[other] == nil {
		return nil
	}
	b, _ := c.sharedForLocked(id)
	return b
}

// arrive notes the socket of a pipe on the side that has not dialed it, for the
// other pipe that may share it; nil if it has failed.
func (c *conn) settleShared(id uint32, ps *pipeSocket) {
	if id&pairedBit == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := c.sharedForLocked(id)
	select {
	case <-b.ready: // It is of a pipe that has ended, which this side has not removed yet.
		c.removeSharedLocked(id)
		b, _ = c.sharedForLocked(id)
	default:
	}
	b.set(ps)
}

// board waits for the socket of a berth and takes the other half of it. It returns
// nil if there is none to be had.
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

// offer tells the peer by msgShare or msgTake that a pipe shares a socket, whose half
// is kept until it has answered.
func (c *conn) offer(kind byte, id uint32, ps *pipeSocket) {
	c.mu.Lock()
	over := c.ended
	if !over {
		c.offers[id] = ps
	}
	c.mu.Unlock()
	if over {
		c.releaseHalf(id, ps)
		return
	}
	c.send(message{kind: kind, pipe: id})
}

// offered is what was offered for a pipe, once; or nil.
func (c *conn) takeOffer(id uint32) *pipeSocket {
	c.mu.Lock()
	defer c.mu.Unlock()
	ps := c.offers[id]
	delete(c.offers, id)
	return ps
}

// refund gives the half of a channel back that a pipe does not use after all.
func (c *conn) releaseHalf(id uint32, ps *pipeSocket) {
	if c.owns(id) {
		ps.endWrite()
	} else {
		ps.endRead()
	}
}

// owns reports whether this side opens the pipe of a number.
func (c *conn) owns(id uint32) bool { return id%2 == 0 == c.dialed }

// taken is an answer to offer: the peer uses the socket for the pipe.
func (c *conn) handleTake(id uint32) error {
	ps := c.takeOffer(id)
	if ps == nil {
		return errShare
	}
	s, r := c.sender(id), c.receiver(id)
	switch {
	case s != nil && s.commit() != nil:
		c.releaseHalf(id, ps)
		c.send(message{kind: msgCannot, pipe: id}) // answered by msgDrop
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

// declined is an answer to offer: the peer cannot use the socket, or gives its pipe
// up.
func (c *conn) handleDecline(id uint32, ps *pipeSocket) {
	c.releaseHalf(id, ps)
	if s := c.sender(id); s != nil {
		c.spawn(func() { c.dialSenderAlone(s) })
	} else if r := c.receiver(id); r != nil {
		c.removeReceiver(r)
		c.send(message{kind: msgDrop, pipe: id})
	}
}

// shares is said by the side that has dialed.
func (c *conn) handleShare(id uint32) error {
	if c.dialed || id&pairedBit == 0 {
		return errShare
	}
	if s := c.sender(id); s != nil {
		if s.offered {
			return errShare
		}
		s.offered = true
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
		c.offer(msgTake, id, ps)
	})
	return nil
}

// shareOwn opens a pipe that this side has wanted, if it still does.
func (c *conn) shareSender(s *sender, b *sharedSocket) {
	ps := c.takeHalf(b)
	if ps == nil {
		c.send(message{kind: msgWant, pipe: s.id}) // then on a socket of its own
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
