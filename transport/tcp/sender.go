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
	conn    *conn
	id      uint32
	opened  chan struct{} // closed by open
	openErr error         // why there is no pipe; set before opened is closed
	ch      *channel      // set before opened is closed
	out     *subflow      // the current subflow; set before opened is closed, and by the user of the socket with mu held
	gone    chan struct{} // closed by shut
	broke   time.Time     // when the socket has failed without a word
	offered bool          // the peer has offered to share a socket; of who hears it

	tryOnce func(fd uintptr) // tries to write tryRest, and sets tryDone
	tryRest []byte
	tryDone int
	parting parting
	single  [1][]byte   // what Write makes a vector of
	vector  net.Buffers // what is being written

	mu       sync.Mutex
	state    openState
	over     error // why the pipe has ended, unless by Close
	deadline time.Time
	writing  bool
	closed   bool
	sent     uint64        // bytes accepted
	buf      *[]byte       // of Transport.sealed, while there is something in it
	rest     []byte        // accepted, and not yet sent; in buf
	flusher  chan struct{} // closed when the flusher has returned; nil if there is none
	moved                  // to other sockets
	path     pathMonitor
}

var (
	_ transport.Sender  = (*sender)(nil)
	_ transport.Capable = (*sender)(nil)
)

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	can := transport.Capabilities{TryWriter: s, VectorWriter: s}
	s.addParts(&can)
	return can
}

// An openState says whether OpenPipe still waits for its pipe.
type openState int

const (
	waits openState = iota
	givenUp
	committed // the peer is told that there is a pipe
)

var (
	errGivenUp  = errors.New("nobody waits for this pipe any more")
	errHasOther = errors.New("this pipe has a socket already")
)

// commit makes sure that OpenPipe will return the pipe.
func (s *sender) commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case givenUp:
		return errGivenUp
	case committed:
		return errHasOther
	}
	s.state = committed
	return nil
}

// giveUp reports whether there will be no pipe.
func (s *sender) giveUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == waits {
		s.state = givenUp
	}
	return s.state == givenUp
}

// open ends the wait of OpenPipe.
func (s *sender) open(ch *channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openErr = err
	if ch != nil {
		s.ch, s.out = ch, ch.half()
		if ch.held != nil {
			s.wrote = ch.held.written
		}
		s.out.start = s.wrote
		s.tryOnce = s.trier()
		s.parting.init()
		if s.over != nil {
			ch.endWrite()
		}
	}
	close(s.opened)
}

// shut ends the pipe for a reason that lies outside of it.
func (s *sender) shut(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return
	}
	s.over = reason
	close(s.gone)
	s.change()
	if s.out != nil {
		s.out.endWrite()
	}
	s.endMoves()
}

func (s *sender) Write(p []byte) (n int, err error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	err = s.sendRest()
	switch {
	case err != nil:
	case s.ch.tls != nil:
		s.single[0] = p
		n, err = s.sendSealed(s.single[:])
		s.single[0] = nil
	default:
		n, err = s.write(p)
	}
	return n, s.finish(n, len(p), err)
}

// begin makes the calling Write the only user of the socket.
func (s *sender) begin() error {
	s.mu.Lock()
	switch {
	case s.closed:
		s.mu.Unlock()
		return errPipeClosed
	case s.over != nil:
		s.mu.Unlock()
		return s.over
	}
	s.writing = true
	flusher := s.flusher
	if flusher == nil {
		s.mu.Unlock()
		return nil
	}
	s.out.setWriteDeadline(past())
	s.change()
	s.mu.Unlock()
	<-flusher

	s.mu.Lock()
	s.flusher = nil
	closed := s.closed
	s.move()
	s.out.setWriteDeadline(s.deadline)
	s.mu.Unlock()
	if closed {
		return s.finish(0, -1, os.ErrDeadlineExceeded)
	}
	return nil
}

// sendRest sends what an earlier call has left.
func (s *sender) sendRest() error {
	for len(s.rest) > 0 {
		n, err := s.out.sock.Write(s.rest)
		s.note(s.rest[:n])
		s.rest = s.rest[n:]
		if err != nil && !s.goesOn(err) {
			return err
		}
	}
	return nil
}

// late reports whether the deadline has passed.
func (s *sender) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || !s.deadline.IsZero() && !time.Now().Before(s.deadline)
}

// interrupted is why a Write has ended before its time.
func (s *sender) interrupted() error {
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
func (s *sender) settle() {
	if len(s.rest) > 0 {
		s.out.setWriteDeadline(time.Time{})
		done := make(chan struct{})
		s.flusher = done
		if !s.conn.spawn(func() { s.flush(done) }) {
			s.flusher = nil // the conn has ended
		}
		return
	}
	s.rest = nil
	if s.buf != nil {
		s.conn.t.sealed.Put(s.buf)
		s.buf = nil
	}
	if s.closed {
		s.sayEnd()
	}
}

func (s *sender) flush(done chan struct{}) {
	defer close(done)
	for {
		n, err := s.out.sock.Write(s.rest)
		s.note(s.rest[:n])
		s.mu.Lock()
		s.rest = s.rest[n:]
		if err != nil && !isTimeout(err) && s.out.unsure.Load() {
			s.mu.Unlock()
			moved := s.awaitSpare(true)
			s.mu.Lock()
			if moved {
				err = os.ErrDeadlineExceeded
			}
		}
		if !isTimeout(err) || s.writing || s.over != nil {
			s.flushed(err)
			s.mu.Unlock()
			return
		}
		s.move() // That is why it was interrupted.
		s.out.setWriteDeadline(time.Time{})
		s.mu.Unlock()
	}
}

// flushed ends the flusher. It is called with s.mu held.
func (s *sender) flushed(err error) {
	if err != nil {
		return // a Write takes over, or reports the same error
	}
	s.flusher = nil
	s.out.setWriteDeadline(s.deadline)
	if !s.writing {
		s.move()
		s.settle()
	}
}

// finish ends a Write that has moved n bytes of want, and says with transport's
// words why it has failed.
func (s *sender) finish(n, want int, err error) error {
	if n == want && isTimeout(err) {
		err = nil // the deadline has come too late to matter
	}
	late := isTimeout(err)
	s.mu.Lock()
	s.writing = false
	s.sent += uint64(n)
	if err == nil || late {
		s.move()
		s.settle()
	}
	closed, over := s.closed, s.over
	s.mu.Unlock()
	switch {
	case err == nil:
		s.broke = time.Time{} // The pipe has moved to another socket since.
		return nil
	case closed:
		return errPipeClosed
	case over != nil:
		return over
	case late:
		return os.ErrDeadlineExceeded
	}
	return s.verdict(err)
}

// verdict waits until the control socket says why the socket has failed.
func (s *sender) verdict(err error) error {
	if s.broke.IsZero() {
		s.broke = time.Now()
	}
	tick := time.NewTicker(verdictTick)
	defer tick.Stop()
	for {
		select {
		case <-s.gone:
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.over
		case <-tick.C:
			if time.Since(s.broke) > s.conn.t.verdictMax {
				s.conn.end(gone(fmt.Errorf("the socket of a pipe broke: %w", err)))
			} else if s.late() {
				return s.interrupted()
			}
		}
	}
}

// tries reports whether the pipe can be written to now, by who must not wait. It
// is called with s.mu held.
func (s *sender) tries() bool {
	return !s.closed && s.over == nil && !s.writing && len(s.rest) == 0 &&
		(s.deadline.IsZero() || time.Now().Before(s.deadline))
}

// TryWrite writes what fits into the socket and leaves the rest to the
// flusher, unless nothing fits, or there is still something left.
func (s *sender) TryWrite(p []byte) bool {
	if len(p) == 0 || len(p) > sealBytes {
		return len(p) == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tries() {
		return false
	}
	if s.ch.tls != nil {
		if s.encrypt(p) != nil {
			return false
		}
		n, _ := s.try(s.rest)
		s.rest = s.rest[n:]
	} else {
		n, full := s.try(p)
		if full {
			return false
		}
		if n < len(p) {
			s.rest = append(s.buffer(), p[n:]...)
			*s.buf = s.rest
		}
	}
	s.sent += uint64(len(p))
	s.settle()
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
	s.change()
	if s.flusher == nil && s.spare == nil {
		s.out.setWriteDeadline(t) // fails only if the pipe has ended
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
	s.change()
	switch {
	case s.writing:
		s.out.setWriteDeadline(past())
	case s.flusher == nil && s.over == nil:
		s.sayEnd()
	}
	return nil
}

// sayEnd tells the peer how long the pipe was, which also takes the place of the
// close_notify of TLS. The socket stays until the peer has read it.
func (s *sender) sayEnd() {
	if !s.saidEnd {
		s.saidEnd = true
		s.conn.say(message{kind: msgEnd, pipe: s.id, n: s.sent})
	}
	s.out.closeWrite()
}
