package tcp

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A sender is the writing end of a pipe.
//
// Write and TryWrite send all data that they accept before they return, except for
// unsent: records that a deadline has interrupted, or data that did not fit into the
// socket. A goroutine, the flusher, sends that regardless of deadlines, since the peer
// must read exactly the accepted data. The next Write takes over from it.
type sender struct {
	conn     *conn
	id       uint32
	opened   chan struct{} // closed by open
	openErr  error         // why OpenPipe fails; set before opened is closed
	ps       *pipeSocket   // set before opened is closed
	done     chan struct{} // closed by fail
	proposed bool          // the peer has proposed a shared socket; used by readMessages

	parts  partWriter
	single [1][]byte   // a vector for Write
	vector net.Buffers // being written

	mu        sync.Mutex
	state     openState
	failure   error // why the pipe has ended, unless by Close
	deadline  time.Time
	writing   bool
	closed    bool
	sent      uint64        // accepted bytes
	buf       *[]byte       // from Transport.records, while unsent is not empty
	unsent    []byte        // accepted but not sent; in buf
	flushDone chan struct{} // closed when the flusher has returned; nil without one

	// Used only by Transport.monitor:
	stall   stallClock
	sampled uint64 // sent at the last sample
}

var (
	_ transport.Sender  = (*sender)(nil)
	_ transport.Capable = (*sender)(nil)
)

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	can := transport.Capabilities{VectorWriter: s}
	s.addPartCapabilities(&can)
	return can
}

// An openState is the state of OpenPipe.
type openState int

const (
	opening openState = iota
	abandoned
	committed // the peer knows that the pipe is open
)

var (
	errOpenAbandoned = errors.New("the pipe was abandoned before it was open")
	errHasSocket     = errors.New("the pipe has a socket already")
)

// commit makes OpenPipe return the pipe. It fails if OpenPipe has returned.
func (s *sender) commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case abandoned:
		return errOpenAbandoned
	case committed:
		return errHasSocket
	}
	s.state = committed
	return nil
}

// abandon makes OpenPipe fail. It reports false if commit was called before.
func (s *sender) abandon() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == opening {
		s.state = abandoned
	}
	return s.state == abandoned
}

// open ends the wait of OpenPipe.
func (s *sender) open(ps *pipeSocket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openErr = err
	if ps != nil {
		s.ps = ps
		s.parts.init()
		if s.failure != nil {
			ps.endWrite()
		}
	}
	close(s.opened)
}

// fail ends the pipe with a reason.
func (s *sender) fail(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return
	}
	s.failure = reason
	close(s.done)
	if s.ps != nil {
		s.ps.endWrite()
	}
}

func (s *sender) Write(p []byte) (int, error) {
	s.single[0] = p
	defer func() { s.single[0] = nil }()
	return s.WriteVectored(s.single[:])
}

// beginWrite makes the caller the user of the socket.
func (s *sender) beginWrite() error {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return errPipeClosed
	case s.failure != nil:
		s.mu.Unlock()
		return s.failure
	}
	s.writing = true
	s.conn.t.monitoring.note()
	flusher := s.flushDone
	if flusher == nil {
		s.mu.Unlock()
		return nil
	}
	s.ps.SetWriteDeadline(past())
	s.mu.Unlock()
	<-flusher

	s.mu.Lock()
	s.flushDone = nil
	closed := s.closed
	s.ps.SetWriteDeadline(s.deadline)
	s.mu.Unlock()
	if closed {
		return s.endWrite(0, -1, os.ErrDeadlineExceeded)
	}
	return nil
}

// sendUnsent sends data that an earlier call has left.
func (s *sender) sendUnsent() error {
	if len(s.unsent) == 0 {
		return nil
	}
	n, err := s.ps.socket.Write(s.unsent)
	s.unsent = s.unsent[n:]
	return err
}

// releaseLocked ends the use of the socket. It starts the flusher if there is unsent
// data, and otherwise returns the buffer and announces the end of a closed pipe. Only the
// user of the socket calls it.
func (s *sender) releaseLocked() {
	if len(s.unsent) > 0 {
		s.ps.SetWriteDeadline(time.Time{})
		done := make(chan struct{})
		s.flushDone = done
		if !s.conn.spawn(func() { s.flush(done) }) {
			s.flushDone = nil // the conn has ended
		}
		return
	}
	s.unsent = nil
	if s.buf != nil {
		s.conn.t.records.Put(s.buf)
		s.buf = nil
	}
	if s.closed {
		s.announceEndLocked()
	}
}

// flush sends unsent. What a Write interrupts, that Write sends; after a failure the next Write fails too.
func (s *sender) flush(done chan struct{}) {
	defer close(done)
	n, err := s.ps.socket.Write(s.unsent)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent = s.unsent[n:]
	if err != nil {
		if !isTimeout(err) {
			s.breakLocked(err)
		}
		return
	}
	s.flushDone = nil
	s.ps.SetWriteDeadline(s.deadline)
	if !s.writing {
		s.releaseLocked()
	}
}

// breakLocked ends the conn after the failure of the socket, unless the pipe has ended.
func (s *sender) breakLocked(err error) {
	if s.failure == nil {
		s.conn.endBroken(s.id, err)
	}
}

// endWrite ends a Write that has accepted n of want bytes, and returns its error.
func (s *sender) endWrite(n, want int, err error) error {
	if n == want && isTimeout(err) {
		err = nil // all was accepted before the deadline
	}
	late := isTimeout(err)
	s.mu.Lock()
	s.writing = false
	s.sent += uint64(n)
	if err == nil || late {
		s.releaseLocked()
	} else {
		s.breakLocked(err)
	}
	closed, over := s.closed, s.failure
	s.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case closed:
		return errPipeClosed
	case over != nil:
		return over
	case late:
		return os.ErrDeadlineExceeded
	}
	if err := awaitCause(s.done, s.interruptError); err != nil {
		return err
	}
	return s.failure
}

// interruptError returns the error of a write that Close or the deadline interrupts, or nil.
func (s *sender) interruptError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errPipeClosed
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// SetWriteDeadline sets the deadline of writes. The flusher ignores it.
func (s *sender) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errPipeClosed
	}
	s.deadline = t
	if s.flushDone == nil {
		s.ps.SetWriteDeadline(t) // fails only if the pipe has ended
	}
	return nil
}

// Close ends the pipe after all accepted data was sent.
func (s *sender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.conn.t.monitoring.note()
	switch {
	case s.writing:
		s.ps.SetWriteDeadline(past())
	case s.flushDone == nil && s.failure == nil:
		s.announceEndLocked()
	}
	return nil
}

// announceEndLocked sends the length of the pipe to the peer. That replaces the close_notify of
// TLS. The socket stays open until the peer has read its end.
func (s *sender) announceEndLocked() {
	s.conn.send(message{kind: msgEnd, pipe: s.id, n: s.sent})
}

// handleHeard ends the socket: the peer knows the length of the pipe.
func (s *sender) handleHeard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ps == nil {
		return
	}
	if err := s.ps.CloseWrite(); err != nil { // The socket has ended. The peer would wait for the end of its stream.
		s.breakLocked(err)
	}
}
