package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

var errReaderClosed = fmt.Errorf("unix: the reader closed the pipe: %w", transport.ErrPeerClosed)

// endDelay is the maximal time between the end of the pipes and that of their conn.
const endDelay = 200 * time.Millisecond

// cause returns the error to report for err of a stream: os.ErrDeadlineExceeded, the error
// of the conn if that ends within endDelay, or else otherwise.
func (c *conn) cause(err, otherwise error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(endDelay)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.Err()
	case <-timer.C:
		return otherwise
	}
}

// A sender is the writing end of a pipe.
type sender struct {
	conn   *conn
	stream net.Conn
	pipe   uint32

	writing sync.Mutex // held during a Write
	sent    uint64

	mu     sync.Mutex
	closed bool
}

func (s *sender) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *sender) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.isClosed() {
		return 0, transport.ErrClosed
	}
	if err := s.conn.Err(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.stream.Write(p)
	s.sent += uint64(n)
	switch {
	case err == nil || n == len(p):
		return n, nil
	case s.isClosed():
		return n, transport.ErrClosed
	}
	return n, s.conn.cause(err, errReaderClosed)
}

func (s *sender) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return transport.ErrClosed // A new deadline would undo the interruption by Close.
	}
	return s.stream.SetWriteDeadline(t)
}

func (s *sender) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.stream.SetWriteDeadline(past())
	s.mu.Unlock()
	if again {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.conn.drop(s.stream)
	s.conn.send(msgEnd, s.pipe, s.sent)
	return nil
}

// A receiver is the reading end of a pipe.
type receiver struct {
	conn   *conn
	stream net.Conn
	got    uint64
	ended  chan struct{} // closed after size is set
	size   uint64        // of the whole pipe

	mu     sync.Mutex
	closed bool
}

// finish sets the number of bytes of the pipe.
func (r *receiver) finish(size uint64) {
	r.size = size
	close(r.ended)
}

func (r *receiver) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

func (r *receiver) Read(p []byte) (int, error) {
	if r.isClosed() {
		return 0, transport.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.stream.Read(p)
	r.got += uint64(n)
	switch {
	case n > 0:
		return n, nil
	case r.isClosed():
		return 0, transport.ErrClosed
	case !errors.Is(err, io.EOF):
		return 0, r.conn.cause(err, fmt.Errorf("unix: read: %w", err))
	}
	// The stream also ends if the process of the peer is killed. Only msgEnd makes that
	// the end of the pipe.
	select {
	case <-r.ended:
		if r.got == r.size {
			return 0, io.EOF
		}
		return 0, fmt.Errorf("unix: %w: %d of %d bytes of a pipe have arrived", transport.ErrPeerGone, r.got, r.size)
	case <-r.conn.done:
		return 0, r.conn.Err()
	}
}

// maxView is the length of the longest view of ReadFunc.
const maxView = 64 << 10

func (r *receiver) ReadFunc(n int, view func(p []byte)) (done int, err error) {
	buf := make([]byte, min(max(n, 0), maxView))
	for done < n {
		m, err := r.Read(buf[:min(n-done, len(buf))])
		if m > 0 {
			view(buf[:m])
			done += m
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *receiver) SetReadDeadline(t time.Time) error {
	if err := r.stream.SetReadDeadline(t); err != nil {
		return r.conn.cause(err, transport.ErrClosed)
	}
	return nil
}

func (r *receiver) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.conn.drop(r.stream)
	return nil
}
