package tcp

import (
	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// addParts adds the capabilities that need to know the room in a socket.
func (s *sender) addParts(can *transport.Capabilities) { can.PartWriter, can.TryVectorWriter = s, s }

// A parting is what a sender has to write as much as there is room for.
type parting struct {
	once   func(fd uintptr) // tries to write pieces, and sets done
	pieces [][]byte
	done   int
	sealed [][]byte // memory for sealParts
}

func (k *parting) init() {
	k.once = func(fd uintptr) {
		n, err := unix.Writev(int(fd), k.pieces)
		for err == unix.EINTR {
			n, err = unix.Writev(int(fd), k.pieces)
		}
		k.done = max(n, 0)
	}
}

// tryParts writes as much of the pieces as the socket takes.
func (s *sender) tryParts(pieces [][]byte) int {
	k := &s.parting
	k.pieces, k.done = pieces, 0
	s.out.raw.Control(k.once)
	s.notePieces(pieces, k.done)
	k.pieces = nil
	return k.done
}

// TryWritePart implements transport.PartWriter. With TLS it encrypts no more
// than TryWrite does, as long as the socket takes that.
func (s *sender) TryWritePart(pieces [][]byte) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tries() {
		return 0
	}
	if s.ch.tls != nil {
		n = s.sealParts(pieces)
	} else {
		n = s.tryParts(pieces)
	}
	s.sent += uint64(n)
	s.settle()
	return n
}

// TryWriteVectored implements transport.TryVectorWriter, as TryWrite does
// transport.TryWriter.
func (s *sender) TryWriteVectored(pieces [][]byte) bool {
	want := 0
	for _, p := range pieces {
		want += len(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want > sealBytes+headBytes || len(pieces) > batchMax || !s.tries() {
		return false
	}
	if s.ch.tls != nil {
		for _, p := range pieces {
			if s.encrypt(p) != nil {
				return false
			}
		}
		n, _ := s.try(s.rest)
		s.rest = s.rest[n:]
	} else {
		n := s.tryParts(pieces)
		if n == 0 && want > 0 {
			return false
		}
		if n < want {
			s.rest = s.buffer()
			for _, p := range pieces {
				k := min(n, len(p))
				s.rest = append(s.rest, p[k:]...)
				n -= k
			}
			*s.buf = s.rest
		}
	}
	s.sent += uint64(want)
	s.settle()
	return true
}

// sealParts encrypts and sends one batch after the other, until the socket
// takes no more of one.
func (s *sender) sealParts(pieces [][]byte) (n int) {
	left := append(s.parting.sealed[:0], pieces...)
	s.parting.sealed = left
	defer clear(s.parting.sealed)
	for left = advance(left, 0); len(left) > 0 && len(s.rest) == 0; {
		m, err := s.batch(left)
		n += m
		if err != nil {
			break
		}
		left = advance(left, m)
		sent, _ := s.try(s.rest)
		s.rest = s.rest[sent:]
	}
	return n
}
