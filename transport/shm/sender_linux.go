package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/ntstore"
	"github.com/nexar-go/nexar/transport"
)

var errReaderLeft = fmt.Errorf("shm: the reader closed the pipe: %w", transport.ErrPeerClosed)

var (
	_ transport.Sender  = (*sender)(nil)
	_ transport.Capable = (*sender)(nil)
)

// Capabilities implements [transport.Capable].
func (s *sender) Capabilities() transport.Capabilities {
	return transport.Capabilities{TryWriter: s, TryVectorWriter: s, PartWriter: s, LazyWriter: s}
}

// A sender is the writing end of a pipe.
type sender struct {
	end
	// mu is held during copies, so that the bytes of a TryWrite stay together, Close
	// is the last access to the ring, and its memory stays mapped.
	mu   sync.Mutex
	ring ringWriter
	full bool   // the ring has memory for all of its data
	from uint64 // written when the ring last had no memory
	has  uint64 // the ring has memory up to this position
	seen uint64 // written at the last call of reclaimRing
}

func newSender(c *conn, memory []byte) *sender {
	s := &sender{ring: ringWriter{ring: newRing(memory), copier: ntstore.New(c.endpoint.cfg.Stream)}}
	s.init(c, &s.ring.ring, s.ring.writerAsleep, s.ring.readerAsleep)
	s.end.reclaim = s.reclaimRing
	unmap := s.free
	s.free = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		unmap()
	}
	return s
}

// Write implements transport.Sender.
func (s *sender) Write(p []byte) (n int, err error) {
	if !s.acquire() {
		return 0, s.whyStopped()
	}
	defer s.unref()
	for {
		k, err := s.copyIn(p[n:])
		if n += k; err != nil {
			return n, s.explain(err)
		}
		if n == len(p) {
			return n, nil
		}
		if k == 0 {
			// Nothing else writes meanwhile: see transport.TryWriter.
			s.waitFor(func() bool {
				return s.ring.head.Load() != s.ring.read || s.ring.readerLeft.Load() != 0 || s.stopped.Load() != 0
			})
		}
	}
}

// copyIn writes the part of p that the ring has room for.
func (s *sender) copyIn(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.whyStopped(); err != nil || len(p) == 0 {
		return 0, err
	}
	if s.ring.readerLeft.Load() != 0 {
		return 0, errReaderLeft
	}
	free, err := s.ring.free(len(p))
	if err != nil {
		return 0, err
	}
	n = min(len(p), free)
	if err := s.reserveLocked(n); err != nil {
		return 0, err
	}
	s.ring.write([][]byte{p}, n, s.wakePeer)
	return n, nil
}

// TryWrite implements transport.TryWriter.
func (s *sender) TryWrite(p []byte) bool { return s.TryWriteVectored([][]byte{p}) }

// TryWriteVectored implements transport.TryVectorWriter.
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	size := sizeOf(pieces)
	return size <= len(s.ring.data) && s.copyAll(pieces, size, size, s.wakePeer) == size
}

// TryWriteLazy implements transport.LazyWriter. It wakes the peer when a sixteenth of the ring is unread.
func (s *sender) TryWriteLazy(p []byte) bool {
	return s.copyAll([][]byte{p}, len(p), len(p), func() {
		if s.ring.unread() > uint64(len(s.ring.data)/16) {
			s.wakePeer()
		}
	}) == len(p)
}

// TryWritePart implements transport.PartWriter.
func (s *sender) TryWritePart(pieces [][]byte) int {
	return s.copyAll(pieces, sizeOf(pieces), 1, s.wakePeer)
}

func sizeOf(pieces [][]byte) (size int) {
	for _, p := range pieces {
		size += len(p)
	}
	return size
}

// copyAll writes the part of pieces that the ring has room for, or nothing if that is less
// than least. Size is their length. It calls wake after each record.
func (s *sender) copyAll(pieces [][]byte, size, least int, wake func()) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() != 0 || s.ring.readerLeft.Load() != 0 {
		return 0
	}
	free, err := s.ring.free(size)
	if n = min(size, free); err != nil || n < least || s.reserveLocked(n) != nil {
		return 0 // the next Write reports the error
	}
	s.ring.write(pieces, n, wake)
	return n
}

// fillAfter is the number of bytes after which a ring reserves all of its memory at once,
// which takes less time than page by page. A ring with less traffic stays small.
const fillAfter = 64 << 10

// reserveLocked reserves memory for the records of the next n bytes, and the length behind them. The ring must have room for them.
func (s *sender) reserveLocked(n int) error {
	if s.full {
		return nil
	}
	if s.ring.written-s.from >= fillAfter {
		if err := s.conn.endpoint.reserve(s.ring.data); err != nil {
			return err
		}
		s.full = true
		s.conn.endpoint.reclaimer.start()
		return nil
	}
	page := uint64(os.Getpagesize())
	for at := s.has &^ (page - 1); s.has < s.ring.written+spanMax(n); at += page {
		if err := s.conn.endpoint.reserve(s.ring.data[s.ring.at(at):][:page]); err != nil {
			return err
		}
		s.has = at + page
	}
	return nil
}

// reclaimRing returns the memory of a full ring to the system if it is empty and has had little
// traffic since the last call. It reports whether a later call may succeed.
func (s *sender) reclaimRing() bool {
	if !s.acquire() {
		return false
	}
	defer s.unref()
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.ring.written-s.seen < fillAfter
	s.seen = s.ring.written
	if !s.full || s.ring.readerLeft.Load() != 0 {
		return false // The memory is freed with the pipe.
	}
	if !idle || s.ring.unread() > 0 {
		return true
	}
	page := uint64(os.Getpagesize())
	at := s.ring.written &^ (page - 1)
	s.full, s.from, s.has = false, s.ring.written, at+page
	// The peer polls the length at written. An error leaves memory in the ring.
	_ = unix.Madvise(s.ring.data[:s.ring.at(at)], unix.MADV_REMOVE)
	_ = unix.Madvise(s.ring.data[s.ring.at(at)+page:], unix.MADV_REMOVE)
	return false
}

// explain returns the error that Write reports for err. An invalid position in the ring ends the
// conn, and a lack of memory ends all conns of the node: peers wait for bytes that cannot be
// sent, and the seed must remove this node, not one of its peers.
func (s *sender) explain(err error) error {
	if err == errHead {
		s.conn.protocolError(err)
		return s.whyStopped()
	}
	if _, ok := errors.AsType[*memoryError](err); ok {
		s.conn.endpoint.endAll(fmt.Errorf("%w: nothing more can be sent to it: %w", transport.ErrPeerGone, err))
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
	if s.acquire() {
		s.mu.Lock()
		s.ring.close()
		s.mu.Unlock()
		s.wakePeer()
		s.unref()
	}
	s.finish()
	return nil
}
