package tcp

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

func eachVariant(t *testing.T, test func(t *testing.T, cfg Config)) {
	for name, cfg := range variants() {
		t.Run(name, func(t *testing.T) { test(t, cfg) })
	}
}

// clog writes to a pipe until a write times out, and returns the number of accepted
// bytes.
func clog(t *testing.T, s *sender, next func(n int) []byte) (taken int) {
	t.Helper()
	for {
		s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := s.Write(next(100_000))
		taken += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return taken
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// counting returns a generator of bytes that depend on their position.
func counting() func(n int) []byte {
	at := 0
	return func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte((at + i) * 7919 >> 8)
		}
		at += n
		return b
	}
}

// TestInterrupted checks that the bytes accepted by an interrupted Write arrive, even if
// nothing else is written and the deadline stays in the past.
func TestInterrupted(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		taken := clog(t, s, counting())
		s.SetWriteDeadline(past())
		if w := transport.CapabilitiesOf(s).TryWriter; w != nil && w.TryWrite([]byte{1}) {
			t.Error("TryWrite past the deadline has written")
		}
		expect := counting()
		r.SetReadDeadline(time.Now().Add(soon))
		n, err := r.ReadFunc(taken, func(p []byte) {
			if !slices.Equal(p, expect(len(p))) {
				t.Error("the bytes are wrong")
			}
		})
		if n != taken || err != nil {
			t.Fatalf("read %d bytes of %d, %v", n, taken, err)
		}
		s.SetWriteDeadline(time.Time{})
		if n, err := s.Write([]byte("more")); n != 4 || err != nil {
			t.Errorf("Write after that: %d, %v", n, err)
		}
	})
}

// TestTakeOver checks that Writes and the flusher hand a full pipe to each other without
// loss.
func TestTakeOver(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		next := counting()
		const chunk = 10_000
		total := clog(t, s, next)
		var pending []byte
		for range 20 {
			if len(pending) == 0 {
				pending = next(70_000)
			}
			s.SetWriteDeadline(time.Now().Add(time.Millisecond))
			n, err := s.Write(pending)
			pending, total = pending[n:], total+n
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			if got, err := r.ReadFunc(chunk, func([]byte) {}); got != chunk || err != nil {
				t.Fatalf("read %d, %v", got, err)
			}
			total -= chunk
		}
		s.Close() // with unsent data
		if n, err := r.ReadFunc(total, func([]byte) {}); n != total || err != nil {
			t.Fatalf("read %d of %d, %v", n, total, err)
		}
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("at the end: %d, %v", n, err)
		}
	})
}

// TestCutShort checks that the end of a socket is not taken for the end of the pipe.
func TestCutShort(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		for name, cut := range map[string]func(s *sender, c *conn){
			"without a message": func(s *sender, _ *conn) { s.ps.CloseWrite() },
			"with an end":       func(s *sender, c *conn) { s.sent += 10; s.Close() },
			"in the middle":     func(s *sender, _ *conn) { s.ps.socket.Close() },
			"by its receiver":   func(_ *sender, c *conn) { c.receiver(0).ps.Close() },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				nodes := newTestNodes(t, 2, cfg)
				dialed, accepted := connect(t, nodes[0], nodes[1])
				s, r := pipeBetween(t, dialed, accepted)
				s.Write([]byte("data"))
				cut(s, accepted)
				_, err := r.ReadFunc(100, func([]byte) {})
				if !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("ReadFunc: %v, want ErrPeerGone", err)
				}
				awaitEnd(t, accepted, transport.ErrPeerGone)
				awaitEnd(t, dialed, transport.ErrPeerGone)
			})
		}
	})
}

// TestBrokenWrite checks that the writer of a broken pipe gets the reason.
func TestBrokenWrite(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, dialed, accepted)
	r.ps.Close() // like a middlebox
	var err error
	for err == nil {
		_, err = s.Write(make([]byte, 1000))
	}
	if !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Write: %v, want ErrPeerGone", err)
	}
	awaitEnd(t, dialed, transport.ErrPeerGone)
}

// TestMaxPipes checks that OpenPipe blocks until a pipe has been read to its end or
// closed by its reader, in both directions.
func TestMaxPipes(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		cfg.MaxPipes = 2
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		for _, ends := range [][2]*conn{{dialed, accepted}, {accepted, dialed}} {
			from, to := ends[0], ends[1]
			s, r := pipeBetween(t, from, to)
			_, r2 := pipeBetween(t, from, to)
			wantFull := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				if _, err := from.OpenPipe(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a third pipe: %v, want the deadline", err)
				}
			}
			wantFull()
			s.Close()
			wantFull()
			if _, err := r.Read(make([]byte, 1)); err != io.EOF {
				t.Fatal(err)
			}
			_, r = pipeBetween(t, from, to)
			wantFull()
			r.Close()
			r2.Close()
			pipeBetween(t, from, to)
			pipeBetween(t, from, to)
		}
	})
}

// TestCancelOpenPipe checks that a cancelled OpenPipe returns a pipe or leaves none.
func TestCancelOpenPipe(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		for _, ends := range [][2]*conn{{dialed, accepted}, {accepted, dialed}} {
			from, to := ends[0], ends[1]
			opened := 0
			for i := range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
				s, err := from.OpenPipe(ctx)
				cancel()
				switch {
				case err == nil:
					opened++
					s.Write([]byte{1})
				case !errors.Is(err, context.DeadlineExceeded):
					t.Fatal(err)
				}
			}
			for range opened {
				r, err := to.AcceptPipe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
					t.Fatalf("read %d, %v", n, err)
				}
			}
			// Abandoned pipes free their quota eventually.
			eventually(t, "the end of the attempts", func() bool { return len(from.pipeQuota) == opened })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := to.AcceptPipe(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("AcceptPipe of abandoned pipes: %v", err)
			}
			cancel()
		}
	})
}

// TestAllocs checks that the data path does not allocate, except for one or two small
// objects of crypto/tls.
func TestAllocs(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		msg := make([]byte, 8<<10)
		view := func([]byte) {}
		got := testing.AllocsPerRun(200, func() {
			if _, err := s.Write(msg); err != nil {
				t.Error(err)
			}
			n := len(msg)
			if w := transport.CapabilitiesOf(s).TryWriter; w != nil {
				n += 100
				if !w.TryWrite(msg[:100]) {
					t.Error("TryWrite finds no room")
				}
			}
			if _, err := r.ReadFunc(n, view); err != nil {
				t.Error(err)
			}
		})
		limit := 2.0
		if cfg.Plain {
			limit = 0
		}
		if got > limit && !require.Race {
			t.Errorf("a message costs %v allocations, want %v at most", got, limit)
		}
	})
}
