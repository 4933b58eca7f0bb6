package quic

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/transport"
)

// A sender is a stream. quic-go does not allow Close during a Write, so Close then
// interrupts the Write, and the Write closes the stream as it returns.
type sender struct {
	st *quicgo.SendStream

	mu      sync.Mutex
	writing bool
	closed  bool
}

var (
	_ transport.Sender  = (*sender)(nil)
	_ transport.Capable = (*sender)(nil)
)

var errSenderClosed = fmt.Errorf("quic: pipe: %w", transport.ErrClosed)

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: s, Prioritizer: s}
}

func (s *sender) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0, errSenderClosed
	}
	s.writing = true
	s.mu.Unlock()

	n, err := s.st.Write(p)

	s.mu.Lock()
	s.writing = false
	closed := s.closed
	s.mu.Unlock()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if closed {
		s.st.Close()
	}
	switch {
	case late && n == len(p):
		return n, nil // all was accepted before the deadline
	case late && closed:
		return n, errSenderClosed
	}
	return n, pipeError(err)
}

// TryWrite accepts p if the windows of the pipe and of the connection have room for all
// of it. It keeps a copy until p is sent.
func (s *sender) TryWrite(p []byte) bool {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	return !closed && s.st.TryWriteAll(p) == nil
}

// Prioritize sends the pipe before the others. The default urgency of a stream is 3, and
// lower ones are sent first (RFC 9218).
func (s *sender) Prioritize() { s.st.SetPriority(1, true) }

func (s *sender) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		// Another deadline would undo the interruption by Close.
		return errSenderClosed
	}
	return s.st.SetWriteDeadline(t)
}

func (s *sender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.writing {
		return s.st.SetWriteDeadline(time.Unix(1, 0))
	}
	// fails only if the reader has closed the pipe
	s.st.Close()
	return nil
}

// scratchBytes is the size of the buffers for ReadFunc.
const scratchBytes = 64 << 10

type receiver struct {
	st    *quicgo.ReceiveStream
	conn  *Conn
	small [64]byte // replaces the scratch buffer for few bytes
}

var _ transport.Receiver = (*receiver)(nil)

func (r *receiver) Read(p []byte) (int, error) {
	n, err := r.st.Read(p)
	switch {
	case n > 0:
		r.conn.read.Add(int64(n))
		return n, nil // the next read returns the error
	case err == io.EOF:
		return 0, io.EOF
	}
	return 0, pipeError(err)
}

func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= len(r.small) {
		return r.readPieces(r.small[:], n, view)
	}
	// Wait for the first byte without a buffer, so that an idle pipe holds none. Read
	// returns the error of Peek again.
	_, _ = r.st.Peek(r.small[:1])
	buf := r.conn.end.scratch.Get().(*[scratchBytes]byte)
	done, err := r.readPieces(buf[:], n, view)
	r.conn.end.scratch.Put(buf)
	return done, err
}

func (r *receiver) readPieces(buf []byte, n int, view func(p []byte)) (done int, err error) {
	for done < n {
		m, err := r.st.Read(buf[:min(n-done, len(buf))])
		if m > 0 {
			r.conn.read.Add(int64(m))
			view(buf[:m])
			done += m
			continue
		}
		if err == io.EOF {
			return done, io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, pipeError(err)
		}
	}
	return done, nil
}

func (r *receiver) SetReadDeadline(t time.Time) error { return r.st.SetReadDeadline(t) }

func (r *receiver) Close() error {
	r.st.CancelRead(0)
	return nil
}
