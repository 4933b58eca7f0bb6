package tcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A sender is the writing end of a pipe.
//
// What Write and TryWrite have accepted is sent before they return, save for a
// rest: records that a deadline has cut off, or what did not fit into the
// socket. A goroutine, the flusher, then sends the rest, whatever deadlines
// are set, because the peer is to read exactly what was accepted. The next
// Write takes the work over from it.
type sender struct {
	conn     *conn
	id       uint32
	opened   chan struct{} // closed by open
	openErr  error         // why there is no pipe; set before opened is closed
	ps       *pipeSocket   // set before opened is closed
	flow     *subflow      // the current subflow; set before opened is closed, and by the user of the socket with mu held
	done     chan struct{} // closed by shut
	brokenAt time.Time     // when the socket has failed without a word
	offered  bool          // the peer has offered to share a socket; of who hears it

	writeOnce func(fd uintptr) // tries to write tryRest, and sets tryDone
	tryBuf    []byte
	tryN      int
	parts     partWriter
	single    [1][]byte   // what Write makes a vector of
	vector    net.Buffers // what is being written

	mu              sync.Mutex
	state           openState
	failure         error // why the pipe has ended, unless by Close
	deadline        time.Time
	writing         bool
	closed          bool
	sent            uint64        // bytes accepted
	buf             *[]byte       // of Transport.sealed, while there is something in it
	unsent          []byte        // accepted, and not yet sent; in buf
	flushDone       chan struct{} // closed when the flusher has returned; nil if there is none
	senderMigration               // to other sockets
	path            pathMonitor
}

var (
	_ transport.Sender  = (*sender)(nil)
	_ transport.Capable = (*sender)(nil)
)

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	can := transport.Capabilities{TryWriter: s, VectorWriter: s}
	s.addPartCapabilities(&can)
	return can
}

// An openState says whether OpenPipe still waits for its pipe.
type openState int

const (
	opening openState = iota
	abandoned
	committed // the peer is told that there is a pipe
)

var (
	errOpenAbandoned = errors.New("nobody waits for this pipe any more")
	errHasSocket     = errors.New("this pipe has a socket already")
)

// commit makes sure that OpenPipe will return the pipe.
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

// giveUp reports whether there will be no pipe.
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
		s.ps, s.flow = ps, ps.newSubflow()
		if ps.records != nil {
			s.written = ps.records.writtenBytes
		}
		s.flow.start = s.written
		s.writeOnce = s.newWriteOnce()
		s.parts.init()
		if s.failure != nil {
			ps.endWrite()
		}
	}
	close(s.opened)
}

// shut ends the pipe for a reason that lies outside of it.
func (s *sender) fail(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return
	}
	s.failure = reason
	close(s.done)
	s.notifyChange()
	if s.flow != nil {
		s.flow.endWrite()
	}
	s.closeSparesLocked()
}

func (s *sender) Write(p []byte) (n int, err error) {
	if err := s.beginWrite(); err != nil {
		return 0, err
	}
	err = s.sendUnsent()
	switch {
	case err != nil:
	case s.ps.tls != nil:
		s.single[0] = p
		n, err = s.sendTLS(s.single[:])
		s.single[0] = nil
	default:
		n, err = s.writePlain(p)
	}
	return n, s.endWrite(n, len(p), err)
}

// begin makes the calling Write the only user of the socket.
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
	flusher := s.flushDone
	if flusher == nil {
		s.mu.Unlock()
		return nil
	}
	s.flow.setWriteDeadline(past())
	s.notifyChange()
	s.mu.Unlock()
	<-flusher

	s.mu.Lock()
	s.flushDone = nil
	closed := s.closed
	s.useSpareLocked()
	s.flow.setWriteDeadline(s.deadline)
	s.mu.Unlock()
	if closed {
		return s.endWrite(0, -1, os.ErrDeadlineExceeded)
	}
	return nil
}

// sendRest sends what an earlier call has left.
func (s *sender) sendUnsent() error {
	for len(s.unsent) > 0 {
		n, err := s.flow.sock.Write(s.unsent)
		s.recordWritten(s.unsent[:n])
		s.unsent = s.unsent[n:]
		if err != nil && !s.continueAfter(err) {
			return err
		}
	}
	return nil
}

// late reports whether the deadline has passed.
func (s *sender) deadlinePassed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || !s.deadline.IsZero() && !time.Now().Before(s.deadline)
}

// interrupted is why a Write has ended before its time.
func (s *sender) interruptError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errPipeClosed
	}
	return os.ErrDeadlineExceeded
}

// settle gives the buffer back, or starts the flusher if there is something in
// it. What is to be sent last goes behind it. It is called with s.mu held by
// the only user of the socket, as it leaves.
func (s *sender) releaseLocked() {
	if len(s.unsent) > 0 {
		s.flow.setWriteDeadline(time.Time{})
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

func (s *sender) flush(done chan struct{}) {
	defer close(done)
	for {
		n, err := s.flow.sock.Write(s.unsent)
		s.recordWritten(s.unsent[:n])
		s.mu.Lock()
		s.unsent = s.unsent[n:]
		if err != nil && !isTimeout(err) && s.flow.unconfirmed.Load() {
			s.mu.Unlock()
			moved := s.waitSpare(true)
			s.mu.Lock()
			if moved {
				err = os.ErrDeadlineExceeded
			}
		}
		if !isTimeout(err) || s.writing || s.failure != nil {
			s.endFlushLocked(err)
			s.mu.Unlock()
			return
		}
		s.useSpareLocked() // That is why it was interrupted.
		s.flow.setWriteDeadline(time.Time{})
		s.mu.Unlock()
	}
}

// flushed ends the flusher. It is called with s.mu held.
func (s *sender) endFlushLocked(err error) {
	if err != nil {
		return // a Write takes over, or reports the same error
	}
	s.flushDone = nil
	s.flow.setWriteDeadline(s.deadline)
	if !s.writing {
		s.useSpareLocked()
		s.releaseLocked()
	}
}

// finish ends a Write that has moved n bytes of want, and says with transport's
// words why it has failed.
func (s *sender) endWrite(n, want int, err error) error {
	if n == want && isTimeout(err) {
		err = nil // the deadline has come too late to matter
	}
	late := isTimeout(err)
	s.mu.Lock()
	s.writing = false
	s.sent += uint64(n)
	if err == nil || late {
		s.useSpareLocked()
		s.releaseLocked()
	}
	closed, over := s.closed, s.failure
	s.mu.Unlock()
	switch {
	case err == nil:
		s.brokenAt = time.Time{} // The pipe has moved to another socket since.
		return nil
	case closed:
		return errPipeClosed
	case over != nil:
		return over
	case late:
		return os.ErrDeadlineExceeded
	}
	return s.waitCause(err)
}

// verdict waits until the control socket says why the socket has failed.
func (s *sender) waitCause(err error) error {
	if s.brokenAt.IsZero() {
		s.brokenAt = time.Now()
	}
	tick := time.NewTicker(causeInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.failure
		case <-tick.C:
			if time.Since(s.brokenAt) > s.conn.t.causeTimeout {
				s.conn.end(gone(fmt.Errorf("the socket of a pipe broke: %w", err)))
			} else if s.deadlinePassed() {
				return s.interruptError()
			}
		}
	}
}

// tries reports whether the pipe can be written to now, by who must not wait. It
// is called with s.mu held.
func (s *sender) canTryLocked() bool {
	return !s.closed && s.failure == nil && !s.writing && len(s.unsent) == 0 &&
		(s.deadline.IsZero() || time.Now().Before(s.deadline))
}

// TryWrite writes what fits into the socket and leaves the rest to the
// flusher, unless nothing fits, or there is still something left.
func (s *sender) TryWrite(p []byte) bool {
	if len(p) == 0 || len(p) > batchBytes {
		return len(p) == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.canTryLocked() {
		return false
	}
	if s.ps.tls != nil {
		if s.encrypt(p) != nil {
			return false
		}
		n, _ := s.tryWrite(s.unsent)
		s.unsent = s.unsent[n:]
	} else {
		n, full := s.tryWrite(p)
		if full {
			return false
		}
		if n < len(p) {
			s.unsent = append(s.buffer(), p[n:]...)
			*s.buf = s.unsent
		}
	}
	s.sent += uint64(len(p))
	s.releaseLocked()
	return true
}

// SetWriteDeadline sets the deadline of Writes. The flusher has none.
func (s *sender) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errPipeClosed
	}
	s.deadline = t
	s.notifyChange()
	if s.flushDone == nil && s.spare == nil {
		s.flow.setWriteDeadline(t) // fails only if the pipe has ended
	}
	return nil
}

// Close ends the pipe, when what was accepted has been sent.
func (s *sender) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.notifyChange()
	switch {
	case s.writing:
		s.flow.setWriteDeadline(past())
	case s.flushDone == nil && s.failure == nil:
		s.announceEndLocked()
	}
	return nil
}

// sayEnd tells the peer how long the pipe was, which also takes the place of the
// close_notify of TLS. The socket stays until the peer has read it.
func (s *sender) announceEndLocked() {
	if !s.endAnnounced {
		s.endAnnounced = true
		s.conn.send(message{kind: msgEnd, pipe: s.id, n: s.sent})
	}
	s.flow.closeWrite()
}
