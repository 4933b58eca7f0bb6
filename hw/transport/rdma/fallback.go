//go:build linux

package rdma

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// drainMax bounds the wait for the completions of a QP that has failed. A working device delivers them at once. A removed device may
// deliver none. stallDrainMax is the bound for a QP that has made no progress, since time has passed before that was noticed.
const (
	drainMax      = time.Second
	stallDrainMax = 100 * time.Millisecond
)

// A fallback is the state of a conn after the failure of its QP: its messages go on over the control connection. Each side counts the
// messages that it has received from the QP, and the other sends the later ones again, which it still has: so no message is
// lost, and none arrives twice. The mutex of the conn guards the fields.
type fallback struct {
	reason    error
	kind      byte          // ctlFailed, or ctlStalled if the QP made no progress on one side
	told      bool          // the peer knows of the failure; constant from the failure on
	settled   chan struct{} // closed when the QP is closed: the device accesses no memory any more
	counted   chan struct{} // closed when the count of the peer has arrived
	over      bool          // messages go over the control connection
	sent      uint64        // messages given to the QP
	acked     uint64        // of them, completed
	received  uint64        // messages received from the QP
	theirs    uint64        // messages that the peer has received from the QP
	posted    int           // receive requests of the QP that have not completed
	idle      []int         // slots that are not posted, since the QP has failed
	out       []byte        // messages for the control connection
	flush     chan struct{} // has capacity 1
	isCounted bool          // counted is closed
}

// controlBytes is the length of the head of a message on the control connection: its kind, immediate value and length.
const controlBytes = 9

// failLocked begins the fallback. The goroutine of it ends with the conn.
func (c *conn) failLocked(reason error) {
	f := &c.fallback
	if f.reason != nil || c.err != nil {
		return
	}
	f.reason = reason
	f.kind = cmp.Or(f.kind, ctlFailed)
	c.substitute.Store(&transport.Fallback{Transport: "tcp+tls", Encrypted: true, Reason: reason.Error()})
	_ = c.qp.Fail() // If it fails, Close ends the transfers.
	poke(c.rouse)
	c.t.tasks.Go(c.fallBack)
}

// Fallback implements [transport.FallbackConn].
func (c *conn) Fallback() *transport.Fallback { return c.substitute.Load() }

// deviceFailed begins the fallback because the device or its port has failed. If the queue pair has failed before, as it does when
// the device cannot send, the reason follows the one that [conn.Fallback] names.
func (c *conn) deviceFailed(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fallback.reason == nil {
		c.failLocked(fmt.Errorf("%w: %w", transport.ErrPeerGone, reason))
		return
	}
	old := c.substitute.Load()
	if !strings.Contains(old.Reason, reason.Error()) {
		c.substitute.Store(&transport.Fallback{Transport: old.Transport, Encrypted: old.Encrypted, Reason: old.Reason + "; then " + reason.Error()})
	}
}

// fallBack moves the conn to the control connection.
func (c *conn) fallBack() {
	f := &c.fallback
	c.t.env.Log.Warn("a queue pair has failed, its traffic goes on over TCP", "peer", c.Peer(), "reason", f.reason) // without the mutex: the handler is the user's
	if !f.told {                                                                                                    // Both sides wait for completions at the same time.
		if err := c.writeControl([]byte{f.kind}); err != nil {
			c.end(fmt.Errorf("%w: %w; before: %w", transport.ErrPeerGone, err, f.reason))
			return
		}
	}
	c.drain()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.endGrantsLocked()
	c.qp.Close()
	c.qp = nil
	c.reclaimLocked()
	c.abandonWritesLocked()
	received, cq := f.received, c.cq
	close(f.settled)
	c.mu.Unlock()
	cq.Interrupt()
	if err := c.writeControl(binary.BigEndian.AppendUint64([]byte{ctlCount}, received)); err != nil {
		c.end(fmt.Errorf("%w: %w; before: %w", transport.ErrPeerGone, err, f.reason))
		return
	}
	select {
	case <-f.counted:
	case <-c.done:
		return
	}
	c.mu.Lock()
	err := c.err
	if err == nil {
		err = c.resendLocked()
	}
	c.mu.Unlock()
	if err != nil {
		c.end(err)
		return
	}
	c.writeAll()
}

// reclaimLocked makes the buffers free that the device has not returned. One that was removed may return none; without the QP
// it accesses none.
func (c *conn) reclaimLocked() {
	f := &c.fallback
	held := make([]bool, len(c.recv))
	for _, i := range f.idle {
		held[i] = true
	}
	for _, r := range c.receivers {
		for _, p := range r.queue {
			held[p.slot] = true
		}
	}
	for i, is := range held {
		if !is {
			f.idle = append(f.idle, i)
		}
	}
	f.posted = 0
}

// drain handles the completions of the failed QP: messages that have arrived are received, and all requests complete.
func (c *conn) drain() {
	limit := c.t.drainMax
	if c.fallback.kind == ctlStalled {
		limit = stallDrainMax
	}
	for end := time.Now().Add(limit); ; {
		isLast := time.Now().After(end) // before the poll: a process that was stopped still polls
		c.mu.Lock()
		err := c.err
		if err == nil {
			err = c.pollLocked()
		}
		isDrained := c.fallback.posted == 0 && len(c.freeReqs)+c.flushed == len(c.requests)
		c.mu.Unlock()
		if err != nil {
			c.end(err)
			return
		}
		if isDrained || isLast {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// abandonWritesLocked ends the requests that are no messages. Their goroutines see the failure.
func (c *conn) abandonWritesLocked() {
	for i := range c.requests {
		r := &c.requests[i]
		if !r.used || r.seq > 0 {
			continue
		}
		if r.slot >= 0 {
			c.freeSend = append(c.freeSend, r.slot)
		}
		if r.op != nil {
			if r.op.status == verbs.Success {
				r.op.status = verbs.StatusFlushed
			}
			poke(r.op.wake)
		}
		*r = request{}
		c.freeReqs = append(c.freeReqs, i)
	}
	for _, s := range c.waiting { // Remote writes that wait for room.
		poke(s.wake)
	}
	c.waiting = c.waiting[:0]
}

// resendLocked sends the messages again that the peer has not received, and lets all others follow.
func (c *conn) resendLocked() error {
	f := &c.fallback
	if f.theirs < f.acked || f.theirs > f.sent {
		return fmt.Errorf("%w: the peer has received %d messages over RDMA, and this side sent %d, of which %d were acknowledged; before: %w",
			transport.ErrPeerGone, f.theirs, f.sent, f.acked, f.reason)
	}
	var left []int
	for i := range c.requests {
		if c.requests[i].used {
			left = append(left, i)
		}
	}
	slices.SortFunc(left, func(i, j int) int { return cmp.Compare(c.requests[i].seq, c.requests[j].seq) })
	f.over = true
	c.t.cfg.Counters.fallbacks.Add(1)
	for _, i := range left {
		r := c.requests[i]
		if r.seq > f.theirs {
			c.outLocked(r.imm, r.payload)
		}
		c.endRequestLocked(i)
	}
	for _, s := range c.senders {
		poke(s.wake)
	}
	return c.flushLocked()
}

// outLocked queues a message for the control connection. The credit of the pipes bounds the queue.
func (c *conn) outLocked(imm uint32, payload []byte) {
	f := &c.fallback
	f.out = append(f.out, ctlMessage)
	f.out = binary.BigEndian.AppendUint32(f.out, imm)
	f.out = binary.BigEndian.AppendUint32(f.out, uint32(len(payload)))
	f.out = append(f.out, payload...)
	c.t.cfg.Counters.copied.Add(uint64(len(payload)))
	poke(f.flush)
}

// writeAll writes the queue to the control connection until the end of the conn.
func (c *conn) writeAll() {
	f := &c.fallback
	for {
		select {
		case <-f.flush:
		case <-c.done:
			return
		}
		c.mu.Lock()
		b := f.out
		f.out = nil
		c.mu.Unlock()
		if err := c.writeControl(b); err != nil {
			c.end(fmt.Errorf("%w: control connection: %w", transport.ErrPeerGone, err))
			return
		}
	}
}

// writeControl writes to the control connection.
func (c *conn) writeControl(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.control.Write(b)
	return err
}

// peerFailed handles the failure of the QP of the peer.
func (c *conn) peerFailed(kind byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peerFailedLocked(kind)
}

func (c *conn) peerFailedLocked(kind byte) {
	if f := &c.fallback; f.reason == nil {
		f.told, f.kind = true, kind
	}
	c.failLocked(fmt.Errorf("%w: the queue pair of the peer has failed", transport.ErrPeerGone))
}

// readCount handles the count of the peer.
func (c *conn) readCount(r io.Reader) error {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.fallback
	if f.isCounted {
		return errors.New("a second count of received messages")
	}
	f.isCounted, f.theirs = true, binary.BigEndian.Uint64(b[:])
	close(f.counted)
	c.peerFailedLocked(ctlFailed)
	return nil
}

// readMessage handles a message on the control connection.
func (c *conn) readMessage(r io.Reader) error {
	var b [controlBytes - 1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	imm, n := binary.BigEndian.Uint32(b[:]), int(binary.BigEndian.Uint32(b[4:]))
	c.mu.Lock()
	f := &c.fallback
	if n > slotBytes || len(f.idle) == 0 || c.qp != nil || c.err != nil {
		defer c.mu.Unlock()
		return cmp.Or(c.err, fmt.Errorf("a message of %d bytes on the control connection, and %d buffers are free", n, len(f.idle)))
	}
	i := f.idle[len(f.idle)-1]
	f.idle = f.idle[:len(f.idle)-1]
	memory := c.recv[i].memory[:n]
	c.uses++
	c.mu.Unlock()
	_, err := io.ReadFull(r, memory)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	if err == nil && c.err == nil {
		if err = c.receivedLocked(i, verbs.Completion{Imm: imm, Length: n}); err == nil {
			err = c.flushLocked()
		}
	}
	c.freeLocked()
	return err
}
