package shm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/transport"
)

// TestRing compares a ring with a queue of bytes.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := make([]byte, headerBytes+64)
		w := ringWriter{ring: newRing(memory)}
		r := ringReader{ring: newRing(memory)}
		var queue []byte
		next := byte(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "write") {
				want := rapid.IntRange(1, 64).Draw(t, "want")
				room, _, err := w.room(want)
				if err != nil || room < min(want, 64-len(queue)) || room > 64-len(queue) {
					t.Fatalf("room(%d) = %d, %v with %d bytes in it", want, room, err, len(queue))
				}
				p := make([]byte, min(want, room))
				for i := range p {
					p[i] = next
					next++
				}
				w.write(p)
				queue = append(queue, p...)
				continue
			}
			limit := rapid.IntRange(1, 64).Draw(t, "limit")
			piece, _, err := r.peek(limit)
			if err != nil || len(piece) > limit || (len(piece) == 0) != (len(queue) == 0) {
				t.Fatalf("peek(%d) = %d bytes, %v, with %d in it", limit, len(piece), err, len(queue))
			}
			if !bytes.HasPrefix(queue, piece) {
				t.Fatalf("peek shows %x, want the first of %x", piece, queue)
			}
			n := rapid.IntRange(0, len(piece)).Draw(t, "dropped")
			r.drop(n)
			queue = queue[n:]
		}
	})
}

// TestInvalidIndexes: a peer that writes invalid values to the indexes ends the conn
// with an error.
func TestInvalidIndexes(t *testing.T) {
	const size = ringBytes
	written := []byte("twelve bytes")
	n := uint64(len(written))
	for _, tail := range []uint64{n - 1, n + size + 1, 1 << 40, 1<<63 - 1} {
		a, b := newPair(t, Config{})
		s, r := newPipe(t, a, b)
		s.Write(written)
		if _, err := r.Read(make([]byte, len(written))); err != nil {
			t.Fatal(err)
		}
		s.ring.tail.Store(tail)
		_, err := r.Read(make([]byte, 100))
		wantBroken(t, b, err)
	}
	for _, head := range []uint64{size + 1, 1 << 40, 1<<63 - 1} {
		a, b := newPair(t, Config{})
		s, r := newPipe(t, a, b)
		s.Write(written)
		r.ring.head.Store(head)
		_, err := s.Write(make([]byte, size))
		wantBroken(t, a, err)
	}
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	s.Write(written)
	r.Read(make([]byte, len(written)))
	s.Write(make([]byte, size)) // so that it has read the index of the reader
	r.ring.head.Store(n - 1)
	_, err := s.Write([]byte{1})
	wantBroken(t, a, err)
}

func wantBroken(t *testing.T, c *conn, err error) {
	t.Helper()
	if !errors.Is(err, transport.ErrPeerGone) || !errors.Is(c.Err(), transport.ErrPeerGone) {
		t.Errorf("error %v, connection ended by %v, want ErrPeerGone for both", err, c.Err())
	}
	if !errors.Is(err, errHead) && !errors.Is(err, errTail) {
		t.Errorf("error %v does not contain the cause", err)
	}
}

// TestInvalidIndexesConcurrently: while a peer changes the words of a ring, calls return, and
// nothing outside of the ring is touched.
func TestInvalidIndexesConcurrently(t *testing.T) {
	for seed := range uint64(10) {
		a, b := newPair(t, Config{})
		s, r := newPipe(t, a, b)
		var group sync.WaitGroup
		group.Go(func() {
			for buf := make([]byte, 100_000); ; {
				if _, err := s.Write(buf); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			for {
				if _, err := r.ReadFunc(70_000, func(p []byte) { bytes.Count(p, []byte{1}) }); err != nil {
					return
				}
			}
		})
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			if !s.acquire() {
				return
			}
			defer s.unref()
			for range 100 {
				s.ring.readerAsleep.Store(rng.Uint32())
				s.ring.writerAsleep.Store(rng.Uint32())
				time.Sleep(10 * time.Microsecond)
			}
			if seed%2 == 0 {
				s.ring.tail.Store(rng.Uint64())
			} else {
				s.ring.head.Store(rng.Uint64())
			}
		})
		// If the nonsense was plausible, or made both sides wait, this ends it.
		timer := time.AfterFunc(100*time.Millisecond, func() { a.Close(); b.Close() })
		group.Wait()
		timer.Stop()
		a.Close()
		b.Close()
	}
}
