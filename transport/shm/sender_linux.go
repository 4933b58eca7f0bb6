package shm

import (
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

var errReaderLeft = fmt.Errorf("shm: the reader closed the pipe: %w", transport.ErrPeerClosed)

var (
	_ transport.Sender    = (*sender)(nil)
	_ transport.TryWriter = (*sender)(nil)

	_ transport.TryVectorWriter = (*sender)(nil)
)

// A sender is the writing end of a pipe.
type sender struct {
	end
	// mu is held while bytes are copied, so that those of TryWrite stay whole
	// and none come after Close.
	mu   sync.Mutex
	ring ringWriter
}

func newSender(c *conn, memory []byte) *sender {
	s := &sender{ring: ringWriter{ring: newRing(memory)}}
	s.init(c, &s.ring.ring, s.ring.writerAsleep, s.ring.readerAsleep)
	return s
}

// Write implements transport.Sender.
func (s *sender) Write(p []byte) (n int, err error) {
	if !s.enter() {
		return 0, s.whyStopped()
	}
	defer s.leave()
	for {
		k, word, err := s.put(p[n:], 1)
		n += k
		if n == len(p) && err == nil {
			return n, nil
		}
		if err != nil {
			return n, s.explain(err)
		}
		if k == 0 {
			s.wait(s.ring.head, word)
		}
	}
}

// TryWrite implements transport.TryWriter.
func (s *sender) TryWrite(p []byte) bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	if len(p) > len(s.ring.data) {
		return false
	}
	n, _, err := s.put(p, len(p))
	return n == len(p) && err == nil
}

// TryWriteVectored implements transport.TryVectorWriter.
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	if !s.enter() {
		return false
	}
	defer s.leave()
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	if size > len(s.ring.data) || !s.copyAll(pieces, size) {
		return false
	}
	s.alert()
	return true
}

func (s *sender) copyAll(pieces [][]byte, size int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whyStopped() != nil || s.ring.readerLeft.Load() != 0 {
		return false
	}
	room, _, err := s.ring.room(size)
	if err != nil || room < size {
		return false
	}
	s.ring.writeAll(pieces)
	return true
}

// put writes as much of p as there is room for, or nothing if that is less
// than least. Only a Write takes pieces; see pieceBytesMax.
func (s *sender) put(p []byte, least int) (n int, word uint64, err error) {
	n, word, err = s.copyIn(p, least)
	if n > 0 {
		s.alert()
	}
	return n, word, err
}

func (s *sender) copyIn(p []byte, least int) (n int, word uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.whyStopped(); err != nil || len(p) == 0 {
		return 0, 0, err
	}
	if s.ring.readerLeft.Load() != 0 {
		return 0, 0, errReaderLeft
	}
	want := min(len(p), max(pieceBytesMax, least))
	room, word, err := s.ring.room(want)
	if err != nil || room < least {
		return 0, word, err
	}
	n = min(want, room)
	s.ring.write(p[:n])
	return n, word, nil
}

// explain is what Write says of an error. Nonsense in the ring is the end of
// the conn.
func (s *sender) explain(err error) error {
	if err == errHead {
		s.conn.broken(err)
		return s.whyStopped()
	}
	return err
}

// SetWriteDeadline implements transport.Sender.
func (s *sender) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(t)
}

// Close implements transport.Sender.
func (s *sender) Close() error {
	s.stop(closedHere)
	if s.enter() {
		s.mu.Lock()
		s.ring.close()
		s.mu.Unlock()
		s.alert()
		s.leave()
	}
	s.finish()
	return nil
}
