package shm

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

// TestTryWriteVectored: either all pieces are written, without other bytes between them, or
// none.
func TestTryWriteVectored(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 7, 100, recordBytesMin - 1, recordBytesMin, recordBytesMax + 1, 3*recordBytesMax + 5, 70_000}
	var queue []byte
	next, refused := byte(0), 0
	some := func(n int) []byte {
		p := make([]byte, n)
		for i := range p {
			p[i] = next
			next++
		}
		return p
	}
	for range 3000 {
		before := next
		var pieces [][]byte
		for range rng.IntN(4) {
			pieces = append(pieces, some(sizes[rng.IntN(len(sizes))]))
		}
		all := bytes.Join(pieces, nil)
		free, _ := s.ring.free(len(all))
		if got := s.TryWriteVectored(pieces); got != (len(all) <= free) {
			t.Fatalf("%d bytes into a ring with room for %d: %v", len(all), free, got)
		} else if !got {
			next = before
			refused++
		} else {
			queue = append(queue, all...)
		}
		if p := some(5); s.TryWrite(p) {
			queue = append(queue, p...)
		} else {
			next -= 5
		}
		got := make([]byte, rng.IntN(len(queue)+1))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, queue[:len(got)]) {
			t.Fatalf("of %d bytes that were read some are wrong: %v", len(got), err)
		}
		queue = queue[len(got):]
	}
	if refused == 0 {
		t.Error("there was always room")
	}
	r.Close()
	if s.TryWriteVectored([][]byte{{1}}) {
		t.Error("writes to a pipe whose reader has closed it")
	}
	s.Close()
	if s.TryWriteVectored([][]byte{{1}}) {
		t.Error("writes to a closed pipe")
	}
}

// TestVectorAllocations: a write of a header and its payload does not allocate.
func TestVectorAllocations(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	pieces := [][]byte{make([]byte, 30), make([]byte, 50_000)}
	view := func([]byte) {}
	if n := testing.AllocsPerRun(100, func() {
		s.TryWriteVectored(pieces)
		r.ReadFunc(50_030, view)
	}); n > 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
}
