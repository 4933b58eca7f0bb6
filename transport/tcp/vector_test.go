package tcp

import (
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// TestWriteVectored checks that all pieces arrive in order, for any lengths and numbers of
// pieces.
func TestWriteVectored(t *testing.T) {
	many := make([]int, 3000) // more than a single writev takes
	for i := range many {
		many[i] = i % 7
	}
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		next, expect := counting(), counting()
		for _, lengths := range [][]int{
			{}, {0}, {0, 0, 0}, {1}, {0, 1, 0}, {25, 8}, {25, 256 << 10}, {headBytes, batchBytes}, {headBytes + 1, batchBytes},
			{batchBytes, 1}, {batchBytes + 1, 1, batchBytes}, {0, 1 << 20, 0, 1 << 20, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
			many,
		} {
			pieces, want := [][]byte{}, 0
			for _, n := range lengths {
				pieces = append(pieces, next(n))
				want += n
			}
			wrote := inBackground(t, "WriteVectored", func() {
				if n, err := s.WriteVectored(pieces); n != want || err != nil {
					t.Errorf("%d pieces: wrote %d, %v, want %d", len(lengths), n, err, want)
				}
			})
			r.SetReadDeadline(time.Now().Add(soon))
			n, err := r.ReadFunc(want, func(p []byte) {
				if !slices.Equal(p, expect(len(p))) {
					t.Errorf("%d pieces: the bytes are wrong", len(lengths))
				}
			})
			if n != want || err != nil {
				t.Fatalf("%d pieces: read %d of %d, %v", len(lengths), n, want, err)
			}
			wrote()
		}
		s.Close()
		if _, err := s.WriteVectored([][]byte{{1}, {2}}); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("WriteVectored on a closed pipe: %v", err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

// TestBatch checks that a header is sent with the batch after it, and that the buffer has
// room for the records.
func TestBatch(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	s, _ := pipeBetween(t, dialed, accepted)
	for _, test := range []struct {
		lengths []int
		want    int
	}{
		{[]int{1 << 20}, batchBytes},
		{[]int{25, 1 << 20}, 25 + batchBytes},
		{[]int{headBytes, 1 << 20}, headBytes + batchBytes},
		{[]int{headBytes + 1, 1 << 20}, batchBytes},
		{[]int{25, 25, 0, 1 << 20}, 25 + batchBytes},
		{[]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, batchPieces},
		{[]int{headBytes, 1, 1, 1, 1, 1, 1, 1 << 20}, headBytes + batchBytes},
	} {
		var pieces [][]byte
		for _, n := range test.lengths {
			pieces = append(pieces, make([]byte, n))
		}
		n, err := s.encryptBatch(pieces)
		if n != test.want || err != nil {
			t.Errorf("%d: sends %d, %v, want %d", test.lengths, n, err, test.want)
		}
		if cap(s.unsent) != batchBufferBytes {
			t.Errorf("%d: the buffer has grown to %d bytes for %d, want %d", test.lengths, cap(s.unsent), len(s.unsent), batchBufferBytes)
		}
		s.unsent = nil
	}
}

// TestWriteVectoredInterrupted checks that a deadline stops WriteVectored at the byte
// that it reports.
func TestWriteVectoredInterrupted(t *testing.T) {
	total := 40 << 20
	if testing.Short() {
		total /= 2
	}
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		reading := inBackground(t, "the reader", func() {
			expect := counting()
			for got := 0; got < total; {
				r.SetReadDeadline(time.Now().Add(soon))
				n, err := r.ReadFunc(min(700_000, total-got), func(p []byte) {
					if !slices.Equal(p, expect(len(p))) {
						t.Error("the bytes are wrong")
					}
				})
				if got += n; err != nil {
					t.Errorf("read %d bytes: %v", got, err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		data, interrupted := counting()(total), 0
		for sent := 0; sent < total; {
			var pieces [][]byte
			want := 0
			for i := 1; want < 4<<20 && sent+want < total; i++ {
				n := min(i*i*1000, total-sent-want)
				pieces = append(pieces, data[sent+want:sent+want+n])
				want += n
			}
			s.SetWriteDeadline(time.Now().Add(2 * time.Millisecond))
			n, err := s.WriteVectored(pieces)
			if n < want == (err == nil) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("wrote %d of %d: %v", n, want, err)
			}
			if sent += n; err != nil {
				interrupted++
			}
		}
		reading()
		if interrupted == 0 {
			t.Error("no deadline has passed")
		}
	})
}

// TestWriteVectoredAllocs checks that a header and its data are sent without allocations.
func TestWriteVectoredAllocs(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		head, data := make([]byte, 25), make([]byte, 8<<10)
		var pieces [2][]byte
		view := func([]byte) {}
		got := testing.AllocsPerRun(200, func() {
			pieces = [2][]byte{head, data}
			if _, err := s.WriteVectored(pieces[:]); err != nil {
				t.Error(err)
			}
			r.ReadFunc(len(head)+len(data), view)
		})
		limit := 4.0 // by crypto/tls, for two records
		if cfg.Plain {
			limit = 0
		}
		if got > limit && !require.Race {
			t.Errorf("a message costs %v allocations, want %v at most", got, limit)
		}
	})
}

// inBackground runs f, and returns a function that waits for it.
func inBackground(t *testing.T, what string, f func()) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() {
		t.Helper()
		select {
		case <-done:
		case <-time.After(soon):
			t.Fatalf("%s has not returned after %v", what, soon)
		}
	}
}
