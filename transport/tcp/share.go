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
type berth struct {
	ready chan struct{} // closed when ch is known
	ch    *channel      // nil if there is none after all
	once  sync.Once
}

// settle says what the socket is. The first word counts.
func (b *berth) settle(ch *channel) {
	b.once.Do(func() {
		b.ch = ch
		close(b.ready)
	})
}

// berth is that of a pipe, and reports whether it is new. A pipe that is not paired
// always has a new one.
func (c *conn) berth(id uint32) (b *berth, first bool) {
	if id&pairedBit == 0 {
		return &berth{ready: make(chan struct{})}, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.berthHeld(id)
}

// berthHeld is berth for one who holds the lock. It is kept until one of the two
// pipes ends.
func (c *conn) berthHeld(id uint32) (b *berth, first bool) {
	if b = c.berths[id/2]; b == nil {
		b, first = &berth{ready: make(chan struct{})}, true
		if c.outgoing[id] != nil || c.incoming[id] != nil {
			c.berths[id/2] = b
		}
	}
	return b, first
}

// unberth is called with the lock held when a pipe has ended. Who waits for its
// socket waits no longer: that may have gone before it came.
func (c *conn) unberth(id uint32) {
	if b := c.berths[id/2]; b != nil {
		delete(c.berths, id/2)
		b.settle(nil)
	}
}

// berthBeside is that of a pipe that the peer says shares the socket of another one;
// nil if that has ended. Both sides know of a pipe before its socket can be shared.
func (c *conn) berthBeside(id uint32) *berth {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := id ^ 1; c.outgoing[other] == nil && c.incoming[other] == nil {
		return nil
	}
	b, _ := c.berthHeld(id)
	return b
}

// arrive notes the socket of a pipe on the side that has not dialed it, for the
// other pipe that may share it; nil if it has failed.
func (c *conn) arrive(id uint32, ch *channel) {
	if id&pairedBit == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, _ := c.berthHeld(id)
	select {
	case <-b.ready: // It is of a pipe that has ended, which this side has not removed yet.
		c.unberth(id)
		b, _ = c.berthHeld(id)
	default:
	}
	b.settle(ch)
}

// board waits for the socket of a berth and takes the other half of it. It returns
// nil if there is none to be had.
func (c *conn) board(b *berth) *channel {
	if b == nil {
		return nil
	}
	select {
	case <-b.ready:
	case <-c.life.Done():
		return nil
	}
	if b.ch == nil || !b.ch.share() {
		return nil
	}
	return b.ch
}

// offer tells the peer by msgShare or msgTake that a pipe shares a socket, whose half
// is kept until it has answered.
func (c *conn) offer(kind byte, id uint32, ch *channel) {
	c.mu.Lock()
	over := c.over
	if !over {
		c.offers[id] = ch
	}
	c.mu.Unlock()
	if over {
		c.refund(id, ch)
		return
	}
	c.say(message{kind: kind, pipe: id})
}

// offered is what was offered for a pipe, once; or nil.
func (c *conn) offered(id uint32) *channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.offers[id]
	delete(c.offers, id)
	return ch
}

// refund gives the half of a channel back that a pipe does not use after all.
func (c *conn) refund(id uint32, ch *channel) {
	if c.owns(id) {
		ch.endWrite()
	} else {
		ch.endRead()
	}
}

// owns reports whether this side opens the pipe of a number.
func (c *conn) owns(id uint32) bool { return id%2 == 0 == c.dialed }

// taken is an answer to offer: the peer uses the socket for the pipe.
func (c *conn) taken(id uint32) error {
	ch := c.offered(id)
	if ch == nil {
		return errShare
	}
	s, r := c.sender(id), c.receiver(id)
	switch {
	case s != nil && s.commit() != nil:
		c.refund(id, ch)
		c.say(message{kind: msgCannot, pipe: id}) // answered by msgDrop
	case s != nil:
		c.say(message{kind: msgTake, pipe: id})
		s.open(ch, nil)
	case r != nil:
		c.surface(r, ch)
	default:
		c.refund(id, ch)
	}
	return nil
}

// declined is an answer to offer: the peer cannot use the socket, or gives its pipe
// up.
func (c *conn) declined(id uint32, ch *channel) {
	c.refund(id, ch)
	if s := c.sender(id); s != nil {
		c.spawn(func() { c.dialAlone(s) })
	} else if r := c.receiver(id); r != nil {
		c.removeReceiver(r)
		c.say(message{kind: msgDrop, pipe: id})
	}
}

// shares is said by the side that has dialed.
func (c *conn) shares(id uint32) error {
	if c.dialed || id&pairedBit == 0 {
		return errShare
	}
	if s := c.sender(id); s != nil {
		if s.offered {
			return errShare
		}
		s.offered = true
		b := c.berthBeside(id)
		c.spawn(func() { c.shareOwn(s, b) })
		return nil
	}
	r, err := c.addReceiver(id)
	if err != nil {
		return err
	}
	b := c.berthBeside(id)
	c.spawn(func() {
		ch := c.board(b)
		if ch == nil {
			c.removeReceiver(r)
			c.say(message{kind: msgCannot, pipe: id})
			return
		}
		c.offer(msgTake, id, ch)
	})
	return nil
}

// shareOwn opens a pipe that this side has wanted, if it still does.
func (c *conn) shareOwn(s *sender, b *berth) {
	ch := c.board(b)
	if ch == nil {
		c.say(message{kind: msgWant, pipe: s.id}) // then on a socket of its own
		return
	}
	switch s.commit() {
	case nil:
		c.say(message{kind: msgTake, pipe: s.id})
		s.open(ch, nil)
		return
	case errGivenUp:
		c.removeSender(s)
	}
	ch.endWrite()
	c.say(message{kind: msgCannot, pipe: s.id})
}
