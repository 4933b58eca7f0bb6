package relay

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/relay/session"
	"github.com/nexar-go/nexar/transport"
)

var errReaderClosed = fmt.Errorf("relay: the reader has closed the pipe: %w", transport.ErrPeerClosed)

// An end is the common part of both ends of a pipe. The mutex of the conn guards it.
type end struct {
	conn    *conn
	changed sync.Cond // of the goroutine that reads or writes
	closed  bool

	deadline deadline.Deadline
}

// init initializes an end of a pipe of c.
func (x *end) init(c *conn) {
	x.conn, x.changed.L = c, &c.mu
	x.deadline = deadline.Deadline{L: &c.mu, Wake: x.changed.Broadcast}
}

// setDeadline replaces the deadline.
func (x *end) setDeadline(t time.Time) error {
	x.conn.mu.Lock()
	defer x.conn.mu.Unlock()
	if x.closed {
		return transport.ErrClosed
	}
	x.deadline.Set(t)
	return nil
}

// closeLocked marks the end as closed and wakes its goroutine.
func (x *end) closeLocked() {
	x.closed = true
	x.deadline.Set(time.Time{})
	x.changed.Broadcast()
}

// A sender implements [transport.Sender].
type sender struct {
	end
	pipe *session.Outgoing
}

// newSenderLocked returns the sending end of a pipe.
func newSenderLocked(c *conn, p *session.Outgoing) *sender {
	s := &sender{pipe: p}
	s.init(c)
	p.Notify = s.changed.Broadcast
	return s
}

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: s, Prioritizer: s}
}

// Prioritize implements [transport.Prioritizer].
func (s *sender) Prioritize() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.pipe.Priority = true
}

// errorLocked returns the error that ends a Write now.
func (s *sender) errorLocked() error {
	switch {
	case s.closed:
		return transport.ErrClosed
	case s.conn.err != nil:
		return s.conn.err
	case s.pipe.Stopped():
		return errReaderClosed
	case s.deadline.Passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Write implements [transport.Sender].
func (s *sender) Write(p []byte) (n int, err error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := s.errorLocked(); err != nil {
			return n, err
		}
		now := time.Now()
		moved := c.session.Write(now, s.pipe, p[n:])
		c.flushLocked(now)
		if n += moved; n == len(p) {
			return n, nil
		}
		if moved == 0 {
			s.changed.Wait()
		}
	}
}

// TryWrite implements [transport.TryWriter].
func (s *sender) TryWrite(p []byte) bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.errorLocked() != nil || c.session.Room(s.pipe) < len(p) {
		return false
	}
	now := time.Now()
	c.session.Write(now, s.pipe, p)
	c.flushLocked(now)
	return true
}

// SetWriteDeadline implements [transport.Sender].
func (s *sender) SetWriteDeadline(t time.Time) error { return s.setDeadline(t) }

// Close implements [transport.Sender].
func (s *sender) Close() error {
	s.conn.do(func(now time.Time) {
		s.closeLocked()
		s.conn.session.End(now, s.pipe)
	})
	return nil
}

// A receiver implements [transport.Receiver].
type receiver struct {
	end
	pipe *session.Incoming
	eof  bool // has been reported
}

// newReceiverLocked returns the receiving end of a pipe.
func newReceiverLocked(c *conn, p *session.Incoming) *receiver {
	r := &receiver{pipe: p}
	r.init(c)
	p.Notify = r.changed.Broadcast
	return r
}

// peekLocked blocks until there are bytes to read or there is an error.
func (r *receiver) peekLocked(limit int) ([]byte, error) {
	for {
		switch {
		case r.closed:
			return nil, transport.ErrClosed
		case r.eof:
			return nil, io.EOF
		case r.conn.err != nil:
			return nil, r.conn.err
		case r.deadline.Passed():
			return nil, os.ErrDeadlineExceeded
		}
		if b := r.conn.session.Peek(r.pipe, limit); len(b) > 0 {
			return b, nil
		}
		if r.pipe.Ended() {
			r.eof = true
			continue
		}
		r.changed.Wait()
	}
}

// consumeLocked removes bytes that peekLocked has returned.
func (r *receiver) consumeLocked(n int) {
	now := time.Now()
	r.conn.session.Consume(now, r.pipe, n)
	r.conn.flushLocked(now)
}

// Read implements [transport.Receiver].
func (r *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	b, err := r.peekLocked(len(p))
	if err != nil {
		return 0, err
	}
	n := copy(p, b)
	r.consumeLocked(n)
	return n, nil
}

// ReadFunc implements [transport.Receiver]. The views are decrypted frames.
func (r *receiver) ReadFunc(n int, view func(p []byte)) (done int, err error) {
	for done < n {
		b, err := r.peek(n - done)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, err
		}
		view(b)
		done += len(b)
		r.consume(len(b))
	}
	return done, nil
}

// peek is peekLocked for a caller without the mutex. The bytes stay valid until they are consumed.
func (r *receiver) peek(limit int) ([]byte, error) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.peekLocked(limit)
}

// consume is consumeLocked for a caller without the mutex.
func (r *receiver) consume(n int) {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.consumeLocked(n)
}

// SetReadDeadline implements [transport.Receiver].
func (r *receiver) SetReadDeadline(t time.Time) error { return r.setDeadline(t) }

// Close implements [transport.Receiver].
func (r *receiver) Close() error {
	r.conn.do(func(now time.Time) {
		r.closeLocked()
		r.conn.session.Stop(now, r.pipe)
	})
	return nil
}
