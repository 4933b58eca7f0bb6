package shm

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/transport"
)

// A model is a ring of the smallest size and the queue of bytes that it stands for.
type model struct {
	w     ringWriter
	r     ringReader
	queue []byte
	next  byte
}

func newModel() *model {
	memory := make([]byte, headerBytes+ringBytesMin)
	for i := range memory[headerBytes+lineBytes:] { // bytes of an earlier lap, which are plausible lengths
		memory[headerBytes+lineBytes+i] = byte((i + 1) % lengthBytes / (lengthBytes - 1) * (i%7 + 1))
	}
	return &model{w: ringWriter{ring: newRing(memory)}, r: ringReader{ring: newRing(memory)}}
}

// write appends the first n of some bytes, in several pieces.
func (m *model) write(n int) {
	p := make([]byte, n+3)
	for i := range p[:n] {
		p[i] = m.next
		m.next++
	}
	m.queue = append(m.queue, p[:n]...)
	m.w.write([][]byte{p[:n/3], nil, p[n/3 : n/2], p[n/2:]}, n, func() {})
}

// read drops up to n bytes. It reports false if peek does not show them.
func (m *model) read(n int) bool {
	piece, err := m.r.peek(n)
	if err != nil || len(piece) > n || (len(piece) == 0) != (len(m.queue) == 0) || !bytes.HasPrefix(m.queue, piece) {
		return false
	}
	if len(piece) > 0 {
		m.r.drop(len(piece))
	}
	m.queue = m.queue[len(piece):]
	return true
}

// TestRing compares a ring with a queue of bytes.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			n := rapid.OneOf(rapid.IntRange(1, 200), rapid.IntRange(1, ringBytesMin)).Draw(t, "bytes")
			if rapid.Bool().Draw(t, "read") {
				if !m.read(n) {
					t.Fatalf("peek(%d) does not show the first of %d bytes", n, len(m.queue))
				}
				continue
			}
			free, err := m.w.free(n)
			if most := ringBytesMin - lineBytes - len(m.queue); err != nil || free > most || len(m.queue) == 0 && free < min(n, most-lineBytes) {
				t.Fatalf("free(%d) = %d, %v, with %d bytes in it", n, free, err, len(m.queue))
			}
			if used := m.w.unread(); (used == 0) != (len(m.queue) == 0) || used < uint64(len(m.queue)) || used > ringBytesMin-lineBytes {
				t.Fatalf("unread() = %d with %d bytes in it", used, len(m.queue))
			}
			if n = min(n, free); n > 0 {
				m.write(n)
			}
		}
		m.w.close()
		for len(m.queue) > 0 {
			if !m.read(ringBytesMin) {
				t.Fatalf("peek does not show the first of %d bytes", len(m.queue))
			}
		}
		if piece, err := m.r.peek(1); len(piece) > 0 || err != io.EOF {
			t.Fatalf("peek at the end shows %d bytes, %v", len(piece), err)
		}
	})
}

// TestWrap: writes of every length, from every line of the ring, arrive, and the ring is empty behind them.
func TestWrap(t *testing.T) {
	for _, full := range []bool{false, true} {
		m := newModel()
		for n := 1; ; n++ {
			free, err := m.w.free(ringBytesMin)
			if err != nil {
				t.Fatal(err)
			}
			if n > free {
				break
			}
			for range ringBytesMin / lineBytes {
				start := m.w.written
				if m.write(n); full {
					for free, _ := m.w.free(1); free > 0; free, _ = m.w.free(1) {
						m.write(free)
					}
				}
				for len(m.queue) > 0 {
					if !m.read(len(m.queue)) {
						t.Fatalf("%d bytes from %d on do not arrive", n, start)
					}
				}
				if piece, err := m.r.peek(1); len(piece) > 0 || err != nil || m.w.unread() != 0 {
					t.Fatalf("behind %d bytes from %d on peek shows %d, %v", n, start, len(piece), err)
				}
				for m.w.written%ringBytesMin != (start+lineBytes)%ringBytesMin { // the next line
					m.write(1)
					m.read(1)
				}
			}
			n += n / 8
		}
	}
}

// TestReadsInARow: a read returns one short record, and after some reads in a row all that there are.
func TestReadsInARow(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	for range 3 {
		for range 3 * streakMin {
			s.TryWrite([]byte{1})
		}
		for i := range streakMin + 1 {
			want := 1
			switch i {
			case streakMin - 1:
				want = 2*streakMin + 1
			case streakMin:
				want = 0
			}
			if n, err := r.TryRead(make([]byte, 100)); n != want || err != nil {
				t.Errorf("read %d: got %d bytes, %v, want %d", i, n, err, want)
			}
		}
	}
}

// TestInvalidWords: a peer that writes invalid values to the words of a ring ends the conn
// with an error.
func TestInvalidWords(t *testing.T) {
	const size = ringBytes
	written := []byte("twelve bytes")
	for _, length := range []uint64{size - lineBytes - lengthBytes + 1, 1 << 40, closed - 1, closed + 1, 1<<64 - 1} {
		a, b := newPair(t, Config{})
		s, r := newPipe(t, a, b)
		s.Write(written)
		if _, err := r.Read(make([]byte, len(written))); err != nil {
			t.Fatal(err)
		}
		s.ring.length(s.ring.written).Store(length)
		_, err := r.Read(make([]byte, 100))
		wantBroken(t, b, err)
	}
	for _, head := range []uint64{1, lineBytes + 1, size + lineBytes, 1 << 40, 1<<64 - lineBytes} {
		a, b := newPair(t, Config{})
		s, r := newPipe(t, a, b)
		s.Write(written)
		r.ring.head.Store(head)
		r.readable() // looks somewhere in the ring
		_, err := s.Write(make([]byte, size))
		wantBroken(t, a, err)
	}
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	s.Write(written)
	r.Read(make([]byte, len(written)))
	for s.TryWritePart([][]byte{make([]byte, size)}) > 0 { // so that it has read the position of the reader
	}
	r.ring.head.Store(0)
	_, err := s.Write([]byte{1})
	wantBroken(t, a, err)
}

// TestReadSleepsDespiteTheRing: a peer that changes the read position does not keep a reader of an empty ring awake.
func TestReadSleepsDespiteTheRing(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	s.Write([]byte{1})
	r.Read(make([]byte, 1))
	s.ring.head.Store(0) // The record there is read, and has a length.
	read := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 1))
		read <- err
	}()
	for end := time.Now().Add(10 * time.Second); !r.parked.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("the reader does not go to sleep")
			break
		}
	}
	s.Write([]byte{2})
	if err := <-read; err != nil {
		t.Error(err)
	}
}

func wantBroken(t *testing.T, c *conn, err error) {
	t.Helper()
	if !errors.Is(err, transport.ErrPeerGone) || !errors.Is(c.Err(), transport.ErrPeerGone) {
		t.Errorf("error %v, connection ended by %v, want ErrPeerGone for both", err, c.Err())
	}
	if !errors.Is(err, errHead) && !errors.Is(err, errLength) {
		t.Errorf("error %v does not contain the cause", err)
	}
}

// TestInvalidWordsConcurrently: while a peer changes the words of a ring, calls return, and
// nothing outside of the ring is touched.
func TestInvalidWordsConcurrently(t *testing.T) {
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
				s.ring.length(rng.Uint64()).Store(rng.Uint64())
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
