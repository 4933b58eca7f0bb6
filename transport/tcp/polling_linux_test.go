package tcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// collect reads n bytes with TryRead and WaitReadable.
func collect(t *testing.T, r *receiver, n int) (got []byte) {
	t.Helper()
	buf := make([]byte, 1000)
	for start := time.Now(); len(got) < n; {
		m, err := r.TryRead(buf[:min(len(buf), n-len(got))])
		if err != nil || time.Since(start) > soon {
			t.Fatalf("TryRead after %d bytes of %d: %v", len(got), n, err)
		}
		if got = append(got, buf[:m]...); m == 0 {
			r.WaitReadable()
		}
	}
	return got
}

func wantNothing(t *testing.T, r *receiver, when string) {
	t.Helper()
	if n, err := r.TryRead(make([]byte, 100)); n != 0 || err != nil {
		t.Fatalf("TryRead %s: %d, %v, want nothing", when, n, err)
	}
}

// TestFirstBytes checks that data that arrived with the end of the handshake is found.
func TestFirstBytes(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		for i := range 20 {
			from, to := dialed, accepted
			if i%2 == 1 {
				from, to = to, from
			}
			s, err := from.OpenPipe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte("first")); err != nil {
				t.Fatal(err)
			}
			p, err := to.AcceptPipe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r := p.(*receiver)
			inBackground(t, "WaitReadable", r.WaitReadable)()
			if got := collect(t, r, 5); string(got) != "first" {
				t.Errorf("got %q", got)
			}
			r.Close()
		}
	})
}

// TestReadBesideWaitReadable checks that a Read that blocks beside WaitReadable gets the
// data, also while the pipe is polled, and that WaitReadable still works.
func TestReadBesideWaitReadable(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		write := func(n int) {
			if _, err := s.Write(make([]byte, n)); err != nil {
				t.Error(err)
			}
		}
		for i := range 60 {
			awaiting := inBackground(t, "WaitReadable", r.WaitReadable)
			if i%2 == 0 {
				r.SetPolling(true)
				write(10)
				for n := 0; n == 0; n, _ = r.TryRead(make([]byte, 10)) {
				}
			}
			reading := inBackground(t, "a Read beside WaitReadable", func() {
				var n int
				var err error
				if i%4 < 2 {
					n, err = r.ReadFunc(10, func([]byte) {})
				} else {
					n, err = io.ReadFull(r, make([]byte, 10))
				}
				if n != 10 || err != nil {
					t.Errorf("read %d, %v", n, err)
				}
			})
			time.Sleep(time.Duration(i%5) * 200 * time.Microsecond)
			write(1000)
			reading()
			if i%2 == 0 {
				r.SetPolling(false)
			}
			awaiting() // since there is buffered data
			collect(t, r, 990)
			wantNothing(t, r, "after all has been read")
		}
		// The deadline that interrupts WaitReadable must not affect others.
		if n, err := r.TryRead(make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("TryRead: %d, %v", n, err)
		}
		awaiting := inBackground(t, "WaitReadable", r.WaitReadable)
		time.Sleep(time.Millisecond)
		r.poll.mu.Lock()
		inside := r.poll.waiting
		r.poll.mu.Unlock()
		if !inside {
			t.Error("WaitReadable does not wait")
		}
		write(1)
		awaiting()
	})
}

// TestInterruptedWaitReadable checks that the deadline that interrupts WaitReadable, for
// data that only the reader knows of, does not end the next Read.
func TestInterruptedWaitReadable(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		for i := range 200 {
			wantNothing(t, r, "of an empty pipe")
			awaiting := inBackground(t, "WaitReadable", r.WaitReadable)
			if i%2 == 0 {
				r.SetPolling(true)
			}
			s.Write(make([]byte, 20))
			for n := 0; n == 0; n, _ = r.TryRead(make([]byte, 10)) {
			}
			if i%2 == 0 {
				r.SetPolling(false)
			}
			writing := inBackground(t, "Write", func() {
				time.Sleep(100 * time.Microsecond)
				s.Write(make([]byte, 20))
			})
			if n, err := r.ReadFunc(30, func([]byte) {}); n != 30 || err != nil {
				t.Fatalf("ReadFunc after TryRead: %d, %v", n, err)
			}
			writing()
			s.Write(make([]byte, 1)) // for a WaitReadable that has missed all of that
			awaiting()
			collect(t, r, 1)
		}

		// The same with a WaitReadable that is slow to return.
		r.poll.interrupted.Store(true)
		r.ps.SetReadDeadline(past())
		reading := inBackground(t, "ReadFunc", func() {
			if n, err := r.ReadFunc(1, func([]byte) {}); n != 1 || err != nil {
				t.Errorf("ReadFunc while WaitReadable returns: %d, %v", n, err)
			}
		})
		time.Sleep(5 * time.Millisecond)
		r.ps.SetReadDeadline(time.Time{})
		r.poll.interrupted.Store(false)
		s.Write(make([]byte, 1))
		reading()
	})
}

// TestPartialRecords checks that TryRead returns nothing until a TLS record is complete, for
// every division of the stream.
func TestPartialRecords(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	unsent, _ := pipeBetween(t, dialed, accepted)
	messages := [][]byte{[]byte("one"), []byte("the second"), {3}}
	records := func(s *sender) (stream []byte) {
		for _, m := range messages {
			if err := s.encrypt(m); err != nil {
				t.Fatal(err)
			}
		}
		stream = slices.Clone(s.unsent)
		s.unsent = nil
		return stream
	}
	want := slices.Concat(messages...)
	length := len(records(unsent))
	s, r := pipeBetween(t, dialed, accepted)
	send := func(p []byte) {
		if _, err := s.ps.socket.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	for cut := range length + 1 {
		stream := records(s)
		send(stream[:cut])
		got := []byte{}
		buf := make([]byte, 1+cut%20)
		for range 10 {
			n, err := r.TryRead(buf)
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			got = append(got, buf[:n]...)
		}
		if cut%3 == 0 {
			r.SetReadDeadline(past())
			if _, err := r.TryRead(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("TryRead past the deadline: %v", err)
			}
			r.SetReadDeadline(time.Time{})
		}
		awaiting := inBackground(t, "WaitReadable", r.WaitReadable)
		send(stream[cut:])
		if len(got) < len(want) {
			awaiting()
		}
		got = append(got, collect(t, r, len(want)-len(got))...)
		if !slices.Equal(got, want) {
			t.Fatalf("cut at %d: got %q, want %q", cut, got, want)
		}
		wantNothing(t, r, "after all has been read")
		if r.poll.buffered.Load() {
			t.Fatalf("cut at %d: WaitReadable returns without unread data", cut)
		}
		send(records(s)) // for a WaitReadable that has missed all of that
		awaiting()
		collect(t, r, len(want))
	}
}

// TestBadRecord checks that an invalid TLS record ends the pipe and wakes WaitReadable.
func TestBadRecord(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, dialed, accepted)
	s.ps.socket.Write([]byte{23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	for start := time.Now(); ; {
		inBackground(t, "WaitReadable", r.WaitReadable)()
		n, err := r.TryRead(make([]byte, 10))
		if err != nil {
			t.Logf("the error: %v", err)
			break
		}
		if n != 0 || time.Since(start) > soon {
			t.Fatalf("TryRead: %d, %v", n, err)
		}
	}
}

func lowat(t *testing.T, r *receiver) (n int) {
	t.Helper()
	r.ps.raw.Control(func(fd uintptr) {
		var err error
		if n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT); err != nil {
			t.Error(err)
		}
	})
	return max(n, 1) // 0 is the same
}

// TestSuppress checks that reports are suppressed with the first data on a polled pipe,
// and at once the next time that it is polled.
func TestSuppress(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		require.Have(t, "rcvlowat", !r.poll.cannotSuppress, "the kernel is older than Linux 4.18")
		want := func(when string, n int) {
			t.Helper()
			if got := lowat(t, r); got != n {
				t.Errorf("%s: the kernel waits for %d bytes, want %d", when, got, n)
			}
		}
		get := func() {
			t.Helper()
			s.Write(make([]byte, 10))
			collect(t, r, 10)
		}
		want("at first", 1)
		r.SetPolling(true)
		want("polled", 1)
		s.Write(make([]byte, 10))
		for got, buf := 0, make([]byte, 100); got < 10; {
			n, _ := r.TryRead(buf)
			got += n
		}
		want("after bytes have come", suppressBytes)
		r.SetPolling(false)
		want("afterwards", 1)
		get()
		r.SetPolling(true)
		want("polled again", suppressBytes)
		reading := inBackground(t, "Read", func() { r.ReadFunc(10, func([]byte) {}) })
		time.Sleep(time.Millisecond)
		s.Write(make([]byte, 10))
		reading()
		want("after a Read that had to wait", 1)
		r.SetPolling(false)
		r.SetPolling(true)
		want("polled after a polling without data", 1)
		r.SetPolling(false)
	})
}

// TestSuppressUnsupported checks that waiters are woken where the kernel cannot suppress
// reports.
func TestSuppressUnsupported(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		r.poll.cannotSuppress = true
		slept := 0
		for i := range 50 {
			wantNothing(t, r, "of an empty pipe")
			var out atomic.Bool
			awaiting := inBackground(t, "WaitReadable", func() { r.WaitReadable(); out.Store(true) })
			time.Sleep(time.Duration(i%3) * 100 * time.Microsecond)
			r.SetPolling(true)
			s.Write(make([]byte, 20))
			if i%2 == 0 {
				for n := 0; n == 0; n, _ = r.TryRead(make([]byte, 10)) {
				}
			} else {
				// On a busy machine the netpoller may report data late, after it was
				// read. Then WaitReadable has returned before.
				eventually(t, "sleep, as the pipe is polled", func() bool {
					asleep := r.poll.sleeping.Load()
					if asleep {
						slept++
					}
					return asleep || out.Load()
				})
			}
			if got := lowat(t, r); got != 1 {
				t.Fatalf("the kernel waits for %d bytes", got)
			}
			r.SetPolling(false)
			awaiting()
			collect(t, r, 20-10*(1-i%2))
		}
		if slept == 0 {
			t.Error("WaitReadable never slept")
		}
	})
}

// TestPollingAllocs checks that TryRead allocates no more than Read.
func TestPollingAllocs(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, dialed, accepted)
		buf := make([]byte, 1000)
		wantNothing(t, r, "of an empty pipe")
		if got := testing.AllocsPerRun(200, func() { r.SetPolling(true); r.TryRead(buf); r.SetPolling(false) }); got > 0 {
			t.Errorf("TryRead of nothing costs %v allocations", got)
		}
		limit := 2.0
		if cfg.Plain {
			limit = 0
		}
		got := testing.AllocsPerRun(200, func() {
			s.Write(buf[:8])
			for n := 0; n == 0; n, _ = r.TryRead(buf) {
			}
		})
		if got > limit && !require.Race {
			t.Errorf("a message costs %v allocations, want %v at most", got, limit)
		}
	})
}

// TestFiles checks that the sockets of all pipes are closed in the end.
func TestFiles(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		dialed, accepted := connect(t, nodes[0], nodes[1])
		before := count()
		for i := range 20 {
			s, r := pipeBetween(t, dialed, accepted)
			awaiting := inBackground(t, "WaitReadable", r.WaitReadable)
			r.SetPolling(i%2 == 0)
			if i%3 == 0 {
				r.Close()
			} else {
				s.Close()
				for err := error(nil); err == nil; _, err = r.TryRead(make([]byte, 1)) {
				}
			}
			awaiting()
		}
		eventually(t, fmt.Sprintf("a return to %d files", before), func() bool { return count() <= before })
	})
}
