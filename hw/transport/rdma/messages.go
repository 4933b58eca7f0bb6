//go:build linux

package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// Kinds of messages, in the upper four bits of the immediate value. The other bits are the number of a pipe.
const (
	msgData     = iota // the payload is data of the pipe
	msgOpen            // a pipe; its argument is 1 for OpenLarge
	msgEnd             // the sender has closed the pipe
	msgCredit          // the receiver has as many more buffers as the argument says
	msgStop            // the receiver has closed the pipe, or refuses it
	msgReturn          // only returns buffers
	msgRecall          // a key must not be used: its lower bits are the argument, and its upper ones the pipe
	msgRecalled        // answers msgRecall: no write with the key is in progress
	msgKinds
)

// A system message is sent when the peer has a buffer for it. Its payload is an argument and the number of buffers for
// system messages that are free again.
type system struct {
	kind, pipe, arg uint32
	credit          *receiver // msgCredit takes the argument from here when it is sent
}

const systemBytes = 8

// poll handles the completions that have arrived.
func (c *conn) poll() {
	c.mu.Lock()
	var err error
	if c.err == nil {
		err = c.pollLocked()
	}
	c.mu.Unlock()
	if err != nil {
		c.end(err)
	}
}

// pollLocked handles the completions that have arrived, and sends the messages that have become possible.
func (c *conn) pollLocked() error {
	for {
		var err error
		if c.qp == nil {
			return nil
		}
		if c.list, err = c.cq.Poll(c.list[:0]); err != nil {
			return c.failed(err)
		}
		if len(c.list) == 0 {
			return nil
		}
		for _, d := range c.list {
			if err := c.completedLocked(d); err != nil {
				return err
			}
		}
		if err := c.flushLocked(); err != nil {
			return err
		}
	}
}

// completedLocked handles a completion.
func (c *conn) completedLocked(d verbs.Completion) error {
	const isSend = 1 << 32
	if d.Status != verbs.Success {
		if d.ID&isSend != 0 {
			if o := c.requests[uint32(d.ID)].op; o != nil && o.status == verbs.Success {
				o.status = d.Status // The end of the conn wakes its goroutine.
			}
		}
		return c.failed(errors.New(statusText(d)))
	}
	if d.ID&isSend == 0 {
		return c.receivedLocked(int(d.ID), d)
	}
	c.endRequestLocked(int(uint32(d.ID)))
	for _, s := range c.waiting {
		poke(s.wake)
	}
	c.waiting = c.waiting[:0]
	return nil
}

// endRequestLocked ends an entry of the send queue.
func (c *conn) endRequestLocked(i int) {
	r := &c.requests[i]
	c.stall.ended++
	if r.slot >= 0 {
		c.freeSend = append(c.freeSend, r.slot)
	}
	if o := r.op; o != nil {
		if o.left--; o.left == 0 {
			poke(o.wake)
		}
	}
	*r = request{}
	c.freeReqs = append(c.freeReqs, i)
}

// statusText explains the status of a failed work request.
func statusText(d verbs.Completion) string {
	hint := ""
	switch d.Status {
	case verbs.StatusRetries:
		hint = ": the peer does not acknowledge; its process or host has ended, or no route leads to its GID"
	case verbs.StatusRemoteKey:
		hint = ": the peer has not granted this write"
	case verbs.StatusFlushed:
		hint = ": the queue pair has failed, for instance because of a write of the peer that was not granted"
	}
	return fmt.Sprintf("work request: status %d (%s), vendor's code %#x%s", d.Status, verbs.StatusText(d.Status), d.Vendor, hint)
}

// requestLocked posts a request to the send queue, which must have a free entry.
func (c *conn) requestLocked(r request, post func(id uint64) error) error {
	n := len(c.freeReqs) - 1
	i := c.freeReqs[n]
	c.freeReqs, c.requests[i] = c.freeReqs[:n], r
	err := post(1<<32 | uint64(i))
	if err != nil {
		return c.failed(err)
	}
	c.watchLocked()
	return nil
}

// messageLocked sends a message.
func (c *conn) messageLocked(r request, imm uint32, payload []byte, key uint32, inline bool) error {
	return c.requestLocked(r, func(id uint64) error { return c.qp.Send(id, imm, payload, key, inline) })
}

// flushLocked sends system messages, as far as the peer has buffers for them. The last buffer is for a message that
// returns buffers, so that two peers which wait for each other go on.
func (c *conn) flushLocked() error {
	for len(c.queue) > 0 && c.systemLeft > 1 && c.hasSystemRoomLocked() {
		m := c.queue[0]
		c.queue = c.queue[1:]
		if err := c.sendSystemLocked(m); err != nil {
			return err
		}
	}
	if c.systemOwed >= systemSlots/2 && c.systemLeft > 0 && c.hasSystemRoomLocked() {
		return c.sendSystemLocked(system{kind: msgReturn})
	}
	return nil
}

// hasSystemRoomLocked reports whether the send queue has an entry for a message, and memory for it, which a device
// with inline messages does not need.
func (c *conn) hasSystemRoomLocked() bool {
	return len(c.freeReqs) > 0 && (c.inlineMax >= systemBytes || len(c.freeSend) > 0)
}

func (c *conn) sendSystemLocked(m system) error {
	if r := m.credit; r != nil {
		m.arg = uint32(r.owed)
		r.owed, r.queued = 0, false
	}
	var b [systemBytes]byte
	binary.BigEndian.PutUint32(b[:], m.arg)
	binary.BigEndian.PutUint32(b[4:], uint32(c.systemOwed))
	use := request{slot: -1}
	payload, key, inline := b[:], uint32(0), c.inlineMax >= systemBytes
	if !inline {
		use.slot = c.takeSendSlotLocked()
		s := c.send[use.slot]
		payload, key = s.memory[:copy(s.memory, b[:])], s.key
	}
	c.systemLeft--
	c.systemOwed = 0
	return c.messageLocked(use, m.kind<<28|m.pipe, payload, key, inline)
}

func (c *conn) takeSendSlotLocked() int {
	n := len(c.freeSend) - 1
	i := c.freeSend[n]
	c.freeSend = c.freeSend[:n]
	return i
}

// tellLocked sends a system message now or later.
func (c *conn) tellLocked(m system) error {
	c.queue = append(c.queue, m)
	return c.flushLocked()
}

// receivedLocked handles a message of the peer in a slot.
func (c *conn) receivedLocked(i int, d verbs.Completion) error {
	kind, pipe := d.Imm>>28, d.Imm&(1<<28-1)
	if kind == msgData {
		return c.dataLocked(i, pipe, d.Length)
	}
	if kind >= msgKinds || d.Length != systemBytes {
		return fmt.Errorf("%w: it sent a message of kind %d and %d bytes", transport.ErrPeerGone, kind, d.Length)
	}
	b := c.recv[i].memory
	arg, returned := binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[4:]))
	if err := c.postLocked(i); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	}
	c.systemOwed++
	if c.systemLeft += returned; c.systemLeft > systemSlots {
		return fmt.Errorf("%w: it returned more buffers than there are", transport.ErrPeerGone)
	}
	switch kind {
	case msgOpen:
		return c.openedLocked(pipe, arg)
	case msgEnd:
		if r := c.receivers[pipe]; r != nil {
			r.eof = true
			c.drainedLocked(r)
			poke(r.wake)
		}
	case msgCredit:
		if s := c.senders[pipe]; s != nil {
			s.credit += int(arg)
			poke(s.wake)
		}
	case msgRecall:
		return c.recallLocked(uint64(c.route.QP)<<40 | uint64(pipe&0xff)<<32 | uint64(arg))
	case msgRecalled:
		c.recalledLocked(uint64(c.number)<<40 | uint64(pipe&0xff)<<32 | uint64(arg))
	case msgStop:
		if s := c.senders[pipe]; s != nil {
			s.stopped = true
			poke(s.wake)
		}
	}
	return nil
}

// openedLocked handles the opening of a pipe by the peer.
func (c *conn) openedLocked(pipe, large uint32) error {
	if c.receivers[pipe] != nil || (pipe%2 == 0) == c.dialed {
		return fmt.Errorf("%w: it opened pipe %d, which is open or has a number of this side", transport.ErrPeerGone, pipe)
	}
	r := &receiver{conn: c, pipe: pipe, slots: pipeSlots, wake: make(chan struct{}, 1)}
	r.deadline.wake = r.wake
	if large == 1 {
		r.slots = largeSlots
	}
	for c.spare < r.slots {
		more := r.slots - c.spare
		added, err := c.addSlotsLocked(more)
		if err != nil {
			return fmt.Errorf("%w: buffers for pipe %d: %w", transport.ErrPeerGone, pipe, err)
		}
		if !added {
			return c.tellLocked(system{kind: msgStop, pipe: pipe})
		}
		c.spare += more
	}
	select {
	case c.incoming <- r:
	default:
		return c.tellLocked(system{kind: msgStop, pipe: pipe})
	}
	c.spare -= r.slots
	c.receivers[pipe] = r
	r.owed = r.slots
	return c.returnLocked(r)
}

// returnLocked sends the credit of a receiver to the peer.
func (c *conn) returnLocked(r *receiver) error {
	if r.queued {
		return nil
	}
	r.queued = true
	return c.tellLocked(system{kind: msgCredit, pipe: r.pipe, credit: r})
}

// dataLocked handles data in slot i.
func (c *conn) dataLocked(i int, pipe uint32, n int) error {
	r := c.receivers[pipe]
	if r == nil || r.eof {
		return fmt.Errorf("%w: it sent data for pipe %d, which is not open", transport.ErrPeerGone, pipe)
	}
	if r.closed {
		return c.recycleLocked(r, i)
	}
	r.queue = append(r.queue, piece{slot: i, hi: n})
	if len(r.queue) > r.slots {
		return fmt.Errorf("%w: it sent more data for pipe %d than it has credit for", transport.ErrPeerGone, pipe)
	}
	if !r.polling || r.blocked > 0 {
		poke(r.wake)
	}
	return nil
}

// recycleLocked posts the slot of a receiver again.
func (c *conn) recycleLocked(r *receiver, i int) error {
	if err := c.postLocked(i); err != nil {
		return fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	}
	if r.closed || r.eof {
		return nil
	}
	if r.owed++; r.owed >= r.slots/2 {
		return c.returnLocked(r)
	}
	return nil
}

// drainedLocked forgets a pipe after its last byte. Its slots serve other pipes.
func (c *conn) drainedLocked(r *receiver) {
	if r.eof && len(r.queue) == 0 && c.receivers[r.pipe] == r {
		delete(c.receivers, r.pipe)
		c.spare += r.slots
	}
}
