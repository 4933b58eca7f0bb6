package tcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// addPartCapabilities adds the capabilities that need partial writes.
func (s *sender) addPartCapabilities(can *transport.Capabilities) {
	can.TryWriter, can.TryVectorWriter, can.PartWriter, can.QueueLimiter = s, s, s, s
}

// LimitQueue implements [transport.QueueLimiter].
func (s *sender) LimitQueue(n int) {
	s.ps.raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) })
}

// A partWriter is the state of nonblocking vectored writes.
type partWriter struct {
	once   func(fd uintptr) // writes pieces without blocking; sets done
	pieces [][]byte
	done   int
	sealed [][]byte // reused by tryTLS
	single [1][]byte
}

func (k *partWriter) init() {
	k.once = func(fd uintptr) {
		n, err := unix.Writev(int(fd), k.pieces)
		for err == unix.EINTR {
			n, err = unix.Writev(int(fd), k.pieces)
		}
		k.done = max(n, 0)
	}
}

// tryWritev writes as much of the pieces as the socket accepts.
func (s *sender) tryWritev(pieces [][]byte) int {
	k := &s.parts
	k.pieces, k.done = pieces, 0
	s.ps.raw.Control(k.once)
	k.pieces = nil
	return k.done
}

// trySendUnsent sends as much of unsent as the socket accepts.
func (s *sender) trySendUnsent() {
	s.parts.single[0] = s.unsent
	n := s.tryWritev(s.parts.single[:])
	s.parts.single[0] = nil
	s.unsent = s.unsent[n:]
}

// canTryLocked reports whether a nonblocking write may use the socket.
func (s *sender) canTryLocked() bool {
	return !s.closed && s.failure == nil && !s.writing && len(s.unsent) == 0 &&
		(s.deadline.IsZero() || time.Now().Before(s.deadline))
}

// TryWrite implements [transport.TryWriter].
func (s *sender) TryWrite(p []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts.single[0] = p
	defer func() { s.parts.single[0] = nil }()
	return len(p) == 0 || s.tryWriteLocked(s.parts.single[:])
}

// TryWriteVectored implements [transport.TryVectorWriter].
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryWriteLocked(pieces)
}

// tryWriteLocked writes pieces as far as they fit into the socket, and leaves the rest to the flusher.
// It reports false if nothing fits, or there is unsent data.
func (s *sender) tryWriteLocked(pieces [][]byte) bool {
	want := length(pieces)
	if want > wire.PayloadMax+headBytes || len(pieces) > batchPieces || !s.canTryLocked() {
		return false
	}
	if s.ps.tls != nil {
		if _, err := s.tryTLS(pieces, true); err != nil {
			return false
		}
	} else {
		n := s.tryWritev(pieces)
		if n == 0 && want > 0 {
			return false
		}
		if n < want {
			s.unsent = s.buffer()
			for _, p := range pieces {
				k := min(n, len(p))
				s.unsent = append(s.unsent, p[k:]...)
				n -= k
			}
			*s.buf = s.unsent
		}
	}
	s.sent += uint64(want)
	s.conn.t.monitoring.note()
	s.releaseLocked()
	return true
}

// TryWritePart implements [transport.PartWriter]. With TLS it encrypts at most one batch
// that the socket does not accept.
func (s *sender) TryWritePart(pieces [][]byte) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.canTryLocked() {
		return 0
	}
	if s.ps.tls != nil {
		n, _ = s.tryTLS(pieces, false)
	} else {
		n = s.tryWritev(pieces)
	}
	s.sent += uint64(n)
	s.conn.t.monitoring.note()
	s.releaseLocked()
	return n
}

// tryTLS encrypts pieces in batches, and writes each as far as it fits into the socket: the peer decrypts one batch while
// this side encrypts the next. Unless it shall take all pieces, it takes no further batch when the socket is full.
func (s *sender) tryTLS(pieces [][]byte, all bool) (n int, err error) {
	s.parts.sealed = append(s.parts.sealed[:0], pieces...)
	defer clear(s.parts.sealed)
	for left := advance(s.parts.sealed, 0); len(left) > 0 && (all || len(s.unsent) == 0); {
		m, err := s.encryptBatch(left)
		n += m
		if err != nil {
			return n, err
		}
		left = advance(left, m)
		s.trySendUnsent()
	}
	return n, nil
}
