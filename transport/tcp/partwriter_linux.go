package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// addPartCapabilities adds the capabilities that need partial writes.
func (s *sender) addPartCapabilities(can *transport.Capabilities) {
	can.PartWriter = s
}

// A partWriter is the state of nonblocking vectored writes.
type partWriter struct {
	once   func(fd uintptr) // writes pieces without blocking; sets done
	pieces [][]byte
	done   int
	sealed [][]byte // reused by tryTLSParts
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

// TryWritePart implements [transport.PartWriter]. With TLS it encrypts at most one batch
// that the socket does not accept.
func (s *sender) TryWritePart(pieces [][]byte) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.canTryLocked() {
		return 0
	}
	if s.ps.tls != nil {
		n = s.tryTLSParts(pieces)
	} else {
		n = s.tryWritev(pieces)
	}
	s.sent += uint64(n)
	s.conn.t.monitoring.note()
	s.releaseLocked()
	return n
}

// tryTLSParts encrypts and writes batches until the socket accepts no more.
func (s *sender) tryTLSParts(pieces [][]byte) (n int) {
	s.parts.sealed = append(s.parts.sealed[:0], pieces...)
	defer clear(s.parts.sealed)
	for left := advance(s.parts.sealed, 0); len(left) > 0 && len(s.unsent) == 0; {
		m, err := s.encryptBatch(left)
		n += m
		if err != nil {
			break
		}
		left = advance(left, m)
		sent, _ := s.tryWrite(s.unsent)
		s.unsent = s.unsent[sent:]
	}
	return n
}
