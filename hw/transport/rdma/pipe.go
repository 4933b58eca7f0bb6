//go:build linux

package rdma

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A deadline interrupts the goroutine that waits for wake.
type deadline struct {
	wake chan struct{}

	mu sync.Mutex
	at time.Time
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	d.at = t
	d.mu.Unlock()
	poke(d.wake)
}

func (d *deadline) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

func (d *deadline) passed() bool {
	at := d.get()
	return !at.IsZero() && !time.Now().Before(at)
}

// wait waits for wake, the deadline or done.
func (d *deadline) wait(done <-chan struct{}) {
	var passes <-chan time.Time
	if at := d.get(); !at.IsZero() {
		t := time.NewTimer(time.Until(at))
		defer t.Stop()
		passes = t.C
	}
	select {
	case <-d.wake:
	case <-passes:
	case <-done:
	}
}

// A sender is the writing end of a pipe. The mutex of the conn guards the fields from credit on.
type sender struct {
	conn     *conn
	pipe     uint32
	wake     chan struct{}
	deadline deadline
	writing  sync.Mutex // held during a Write

	credit  int // messages that the peer has buffers for
	stopped bool
	closed  bool
}

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: s, TryVectorWriter: s}
}

// errLocked returns the reason why nothing can be written.
func (s *sender) errLocked() error {
	switch {
	case s.closed:
		return transport.ErrClosed
	case s.conn.err != nil:
		return s.conn.err
	case s.stopped:
		return fmt.Errorf("rdma: the reader closed the pipe, or refused it: %w", transport.ErrPeerClosed)
	}
	return nil
}

// Write implements [transport.Sender]. Long payloads in mapped memory are sent from there.
func (s *sender) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	c := s.conn
	var from *region
	var o *op
	if len(p) >= slotBytes/2 && isMapped(p) || len(p) >= c.t.dev.pinMin {
		if !c.hold() {
			return 0, c.Err()
		}
		defer c.letGo()
		if from, err = c.t.dev.register(p); err != nil {
			from = nil // The payload is copied.
		} else {
			defer from.release()
			o = newOp()
		}
	}
	for {
		c.mu.Lock()
		if err = s.errLocked(); err == nil && n < len(p) && s.deadline.passed() {
			err = os.ErrDeadlineExceeded
		}
		var broken error
		for err == nil && broken == nil && n < len(p) && s.readyLocked(from != nil) {
			k := min(len(p)-n, slotBytes)
			broken = s.sendLocked(p[n:n+k], from, o)
			n += k
		}
		wait := err == nil && broken == nil && n < len(p)
		if wait && s.credit > 0 {
			c.waiting = append(c.waiting, s)
		}
		c.mu.Unlock()
		if broken != nil {
			c.end(broken)
			continue
		}
		if !wait {
			break
		}
		if c.poll(); s.isReady(from != nil) {
			continue
		}
		c.sleep(1)
		s.deadline.wait(c.done)
		c.sleep(-1)
	}
	if o != nil && !c.finish(o) && err == nil {
		err = c.Err()
	}
	return n, err
}

// readyLocked reports whether a message can be sent.
func (s *sender) readyLocked(registered bool) bool {
	return s.credit > 0 && len(s.conn.freeReqs) > sendSpare && (registered || len(s.conn.freeSend) > 0)
}

func (s *sender) isReady(registered bool) bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.errLocked() != nil || s.readyLocked(registered)
}

// sendLocked sends a message: from a registration, or a copy.
func (s *sender) sendLocked(p []byte, from *region, o *op) error {
	c := s.conn
	r := request{slot: -1, op: o}
	inline := len(p) <= c.inlineMax
	var key uint32
	switch {
	case inline:
		r.op = nil
	case from != nil:
		key = from.mr.Local
		o.left++
	default:
		r.slot = c.takeSendSlotLocked()
		to := c.send[r.slot]
		p, key = to.memory[:copy(to.memory, p)], to.key
		c.t.cfg.Counters.copied.Add(uint64(len(p)))
	}
	s.credit--
	return c.messageLocked(r, msgData<<28|s.pipe, p, key, inline)
}

// TryWrite implements [transport.TryWriter].
func (s *sender) TryWrite(p []byte) bool { return s.tryWrite(len(p), p, nil) }

// TryWriteVectored implements [transport.TryVectorWriter].
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	return s.tryWrite(size, nil, &gather{pieces: pieces})
}

// tryWrite is TryWrite for size bytes: those of p, or those of from if it is not nil.
func (s *sender) tryWrite(size int, p []byte, from *gather) bool {
	c := s.conn
	c.mu.Lock()
	messages := (size + slotBytes - 1) / slotBytes
	can := func() bool {
		return s.errLocked() == nil && s.credit >= messages && len(c.freeSend) >= messages && len(c.freeReqs) >= sendSpare+messages
	}
	var broken error
	if !can() && c.err == nil {
		broken = c.pollLocked()
	}
	ok := broken == nil && can() && !s.deadline.passed()
	for ok && broken == nil && size > 0 {
		k := min(size, slotBytes)
		if from != nil {
			broken = s.gatherLocked(from, k)
		} else {
			broken, p = s.sendLocked(p[:k], nil, nil), p[k:]
		}
		size -= k
	}
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
		return false
	}
	return ok
}

// SetWriteDeadline implements [transport.Sender].
func (s *sender) SetWriteDeadline(t time.Time) error {
	s.deadline.set(t)
	return nil
}

// Close implements [transport.Sender].
func (s *sender) Close() error {
	c := s.conn
	c.mu.Lock()
	again := s.closed
	s.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	poke(s.wake)
	s.writing.Lock()
	defer s.writing.Unlock()
	c.mu.Lock()
	delete(c.senders, s.pipe)
	var broken error
	if c.err == nil {
		broken = c.tellLocked(system{kind: msgEnd, pipe: s.pipe})
	}
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
	}
	return nil
}

// A piece is unread data in a slot.
type piece struct{ slot, lo, hi int }

// A receiver is the reading end of a pipe. The mutex of the conn guards the fields from slots on.
type receiver struct {
	conn     *conn
	pipe     uint32
	wake     chan struct{}
	deadline deadline

	slots   int // that belong to the pipe
	owed    int // of them, free but not returned to the peer as credit
	queued  bool
	queue   []piece
	eof     bool // no data follows
	closed  bool
	busy    bool // the first piece is being read
	blocked int  // goroutines in Read
	polling bool
}

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() transport.Capabilities { return transport.Capabilities{Poller: r} }

// stateLocked returns the error of a read without data: nil if it must wait.
func (r *receiver) stateLocked() error {
	switch {
	case r.closed:
		return transport.ErrClosed
	case r.conn.err != nil:
		return r.conn.err
	case r.deadline.passed():
		return os.ErrDeadlineExceeded
	case len(r.queue) == 0 && r.eof:
		return io.EOF
	}
	return nil
}

// next passes the next at most n bytes to use. It returns 0 and nil if there are none and block is false.
func (r *receiver) next(n int, block bool, use func(p []byte)) (int, error) {
	c := r.conn
	for polled := false; ; polled = true {
		c.mu.Lock()
		if err := r.stateLocked(); err != nil {
			c.mu.Unlock()
			return 0, err
		}
		if len(r.queue) > 0 {
			break
		}
		c.mu.Unlock()
		switch {
		case !polled:
			c.poll()
		case !block:
			return 0, nil
		default:
			r.block(1)
			r.deadline.wait(c.done)
			r.block(-1)
		}
	}
	p := &r.queue[0]
	n = min(n, p.hi-p.lo)
	view := c.recv[p.slot].memory[p.lo : p.lo+n]
	r.busy = true
	c.uses++
	c.mu.Unlock()
	defer r.consume(n)
	use(view)
	return n, nil
}

// block adds n to the number of goroutines that wait for data in Read. These are told of it also while polling is on, so that no
// poller is needed.
func (r *receiver) block(n int) {
	r.conn.mu.Lock()
	r.blocked += n
	if len(r.queue) > 0 {
		poke(r.wake) // The data may have arrived just before.
	}
	r.conn.mu.Unlock()
	r.conn.sleep(n)
}

// consume ends the use of n bytes of the first piece.
func (r *receiver) consume(n int) {
	c := r.conn
	c.mu.Lock()
	r.busy = false
	c.uses--
	var broken error
	if p := &r.queue[0]; c.err == nil {
		if p.lo += n; p.lo == p.hi || r.closed {
			i := p.slot
			r.queue = r.queue[1:]
			broken = c.recycleLocked(r, i)
			c.drainedLocked(r)
		}
	}
	c.freeLocked()
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
	}
}

// Read implements [transport.Receiver].
func (r *receiver) Read(p []byte) (n int, err error) { return r.read(p, true) }

// TryRead implements [transport.Poller].
func (r *receiver) TryRead(p []byte) (int, error) { return r.read(p, false) }

func (r *receiver) read(p []byte, block bool) (n int, err error) {
	if len(p) == 0 {
		r.conn.mu.Lock()
		defer r.conn.mu.Unlock()
		if r.closed {
			return 0, transport.ErrClosed
		}
		return 0, nil
	}
	for n < len(p) {
		k, err := r.next(len(p)-n, block && n == 0, func(view []byte) { r.conn.t.cfg.Counters.copied.Add(uint64(copy(p[n:], view))) })
		if n += k; k == 0 {
			if n > 0 {
				err = nil
			}
			return n, err
		}
	}
	return n, nil
}

// ReadFunc implements [transport.Receiver].
func (r *receiver) ReadFunc(n int, view func(p []byte)) (done int, err error) {
	for done < n {
		k, err := r.next(n-done, true, view)
		done += k
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, err
		}
	}
	if done == 0 {
		_, err = r.read(nil, false)
	}
	return done, err
}

// TryReadFunc implements [transport.Poller].
func (r *receiver) TryReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	k, err := r.next(n, false, view)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return k, err
}

// WaitReadable implements [transport.Poller]. It returns only if there is data, or a reason why none will come: a caller that finds
// nothing several times blocks in Read.
func (r *receiver) WaitReadable() {
	c := r.conn
	for {
		c.mu.Lock()
		ready := r.stateLocked() != nil || len(r.queue) > 0 && !r.polling
		c.mu.Unlock()
		if ready {
			return
		}
		r.deadline.wait(c.done)
	}
}

// SetPolling implements [transport.Poller].
func (r *receiver) SetPolling(on bool) {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.polling == on {
		return
	}
	r.polling = on
	if on {
		c.pollers++
		return
	}
	c.pollers--
	poke(c.rouse)
	poke(r.wake)
}

// SetReadDeadline implements [transport.Receiver].
func (r *receiver) SetReadDeadline(t time.Time) error {
	r.deadline.set(t)
	return nil
}

// Close implements [transport.Receiver].
func (r *receiver) Close() error {
	c := r.conn
	c.mu.Lock()
	var broken error
	if !r.closed {
		r.closed = true
		if r.polling {
			r.polling = false
			c.pollers--
			poke(c.rouse)
		}
		var rest []piece
		for i, p := range r.queue {
			if i == 0 && r.busy {
				rest = append(rest, p)
			} else if c.err == nil && broken == nil {
				broken = c.recycleLocked(r, p.slot)
			}
		}
		r.queue = rest
		if c.err == nil && broken == nil && !r.eof {
			broken = c.tellLocked(system{kind: msgStop, pipe: r.pipe})
		}
		c.drainedLocked(r)
	}
	c.mu.Unlock()
	poke(r.wake)
	if broken != nil {
		c.end(broken)
	}
	return nil
}
