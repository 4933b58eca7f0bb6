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
	// mu is held during copies, so that the bytes of a TryWrite stay together and Close
	// is the last access to the ring.
	mu   sync.Mutex
	ring ringWriter
	full bool   // the ring has memory for all of its data
	from uint64 // bytes written when the ring last had no memory
	has  uint64 // the ring has memory up to this byte of the pipe
	seen uint64 // bytes written at the last call of reclaimRing
}

func newSender(c *conn, memory []byte) *sender {
	s := &sender{ring: ringWriter{ring: newRing(memory), copier: ntstore.New(c.endpoint.cfg.Stream)}}
	s.init(c, &s.ring.ring, s.ring.writerAsleep, s.ring.readerAsleep)
	s.end.reclaim = s.reclaimRing
	return s
}

// Write implements transport.Sender.
func (s *sender) Write(p []byte) (n int, err error) {
	if !s.acquire() {
		return 0, s.whyStopped()
	}
	defer s.unref()
	for {
		k, word, err := s.put(p[n:])
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

// put writes the part of p that the ring has room for, up to pieceBytesMax.
func (s *sender) put(p []byte) (n int, word uint64, err error) {
	n, word, err = s.copyIn(p[:min(len(p), pieceBytesMax)])
	if n > 0 {
		s.wakePeer()
	}
	return n, word, err
}

func (s *sender) copyIn(p []byte) (n int, word uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.whyStopped(); err != nil || len(p) == 0 {
		return 0, 0, err
	}
	if s.ring.readerLeft.Load() != 0 {
		return 0, 0, errReaderLeft
	}
	room, word, err := s.ring.room(len(p))
	if err != nil {
		return 0, word, err
	}
	n = min(len(p), room)
	if err := s.reserveLocked(n); err != nil {
		return 0, 0, err
	}
	s.ring.write(p[:n])
	return n, word, nil
}

// TryWrite implements transport.TryWriter.
func (s *sender) TryWrite(p []byte) bool { return s.TryWriteVectored([][]byte{p}) }

// TryWriteVectored implements transport.TryVectorWriter.
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	size := sizeOf(pieces)
	return size <= len(s.ring.data) && s.copyAll(pieces, size, size, s.wakePeer) == size
}

// lazyBytesMax is the number of unread bytes of a pipe above which a lazy write wakes the peer. It is at most a quarter of
// the smallest ring, so that lazy writes do not fill the ring of a sleeping peer.
const lazyBytesMax = ringBytesMin / 4

// TryWriteLazy implements transport.LazyWriter.
func (s *sender) TryWriteLazy(p []byte) bool {
	return s.copyAll([][]byte{p}, len(p), len(p), func() {
		if s.ring.unread() > lazyBytesMax {
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
// than least. Size is their length. It calls wake when the reader has bytes, which can be before the last byte is copied.
func (s *sender) copyAll(pieces [][]byte, size, least int, wake func()) (n int) {
	if !s.acquire() {
		return 0
	}
	defer s.unref()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whyStopped() != nil || s.ring.readerLeft.Load() != 0 {
		return 0
	}
	room, _, err := s.ring.room(size)
	if err != nil || room < least || s.reserveLocked(min(size, room)) != nil {
		return 0 // the next Write reports the error
	}
	s.ring.writeAll(pieces, min(size, room), wake)
	return min(size, room)
}

// fillAfter is the number of bytes after which a ring reserves all of its memory at once,
// which takes less time than page by page. A ring with less traffic stays small.
const fillAfter = 64 << 10

// reserveLocked reserves memory for the next n bytes. The ring must have room for them.
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
	for at := s.has &^ (page - 1); s.has < s.ring.written+uint64(n); at += page {
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
	if !idle || !s.ring.isRead() {
		return true
	}
	if err := unix.Madvise(s.ring.data, unix.MADV_REMOVE); err != nil {
		return false
	}
	s.full, s.from, s.has = false, s.ring.written, s.ring.written
	return false
}

// explain returns the error that Write reports for err. Invalid indexes in the ring end the
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
