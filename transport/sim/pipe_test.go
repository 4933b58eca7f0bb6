package sim_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// A world has two hosts, a and b, with a conn from a to b.
type world struct {
	*testing.T
	network *sim.Network
	a, b    transport.Conn
}

// newWorld connects a and b. It must be called in a bubble.
func newWorld(t *testing.T, config sim.Config) *world {
	w := &world{T: t, network: sim.New(config)}
	t.Cleanup(func() { w.network.Close() })
	w.a, w.b = w.connect("a", "b")
	return w
}

// connect dials one host from another, at unused ports.
func (w *world) connect(from, to string) (dialed, accepted transport.Conn) {
	w.Helper()
	client, err := w.network.Host(from).Listen(0)
	if err != nil {
		w.Fatal(err)
	}
	server, err := w.network.Host(to).Listen(0)
	if err != nil {
		w.Fatal(err)
	}
	if dialed, err = client.Dial(w.Context(), server.Addr(), server.Addr()); err != nil {
		w.Fatal(err)
	}
	if accepted, err = server.Accept(w.Context()); err != nil {
		w.Fatal(err)
	}
	return dialed, accepted
}

// pipe opens a pipe and accepts it at the peer.
func (w *world) pipe(from, to transport.Conn) (transport.Sender, transport.Receiver) {
	w.Helper()
	s, err := from.OpenPipe(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	r, err := to.AcceptPipe(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return s, r
}

// write writes p, which must not block.
func (w *world) write(s transport.Sender, p []byte) {
	w.Helper()
	if n, err := s.Write(p); n != len(p) || err != nil {
		w.Fatalf("Write of %d bytes: got %d, %v", len(p), n, err)
	}
}

// wantDelivery reads n bytes and fails unless the last one arrives after exactly d.
func (w *world) wantDelivery(r transport.Receiver, n int, start time.Time, d time.Duration) {
	w.Helper()
	if _, err := r.ReadFunc(n, func([]byte) {}); err != nil {
		w.Fatal(err)
	}
	if got := time.Since(start); got != d {
		w.Errorf("%d bytes took %v, want %v", n, got, d)
	}
}

func inBubble(t *testing.T, config sim.Config, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, config)) })
}

func TestDelay(t *testing.T) {
	const delay = 20 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w := newWorld(t, sim.Config{Delay: delay})
		if got, want := time.Since(start), 3*delay; got != want {
			t.Errorf("Dial and Accept took %v, want %v", got, want)
		}
		s, r := w.pipe(w.a, w.b)
		start = time.Now()
		w.write(s, make([]byte, 100_000))
		w.wantDelivery(r, 100_000, start, delay)
	})
}

func TestRateIsSharedByPipes(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Millisecond, Rate: 1e6}, func(w *world) {
		s1, r1 := w.pipe(w.a, w.b)
		s2, r2 := w.pipe(w.a, w.b)
		s3, r3 := w.pipe(w.b, w.a)
		start := time.Now()
		w.write(s1, make([]byte, 100_000))
		w.write(s2, make([]byte, 100_000))
		w.write(s3, make([]byte, 100_000))
		w.wantDelivery(r1, 100_000, start, 101*time.Millisecond)
		w.wantDelivery(r3, 100_000, start, 101*time.Millisecond) // the other direction is another link
		w.wantDelivery(r2, 100_000, start, 201*time.Millisecond)
	})
}

func TestWindow(t *testing.T) {
	inBubble(t, sim.Config{Window: 1000}, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		s.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := s.Write(make([]byte, 5000)); n != 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			w.Errorf("Write to an unread pipe: got %d, %v, want 1000 and a missed deadline", n, err)
		}
		s.SetWriteDeadline(time.Time{})
		if transport.CapabilitiesOf(s).TryWriter.TryWrite([]byte{1}) {
			w.Error("TryWrite succeeds though the window is full")
		}
		if n, err := r.Read(make([]byte, 300)); n != 300 || err != nil {
			w.Fatal(n, err)
		}
		if !transport.CapabilitiesOf(s).TryWriter.TryWrite(make([]byte, 300)) {
			w.Error("TryWrite fails though the window has room")
		}
	})
}

// deliveries sends 50 pieces and returns the times of their delivery. If disturbed, another
// pipe sends between them.
func deliveries(t *testing.T, config sim.Config, disturbed bool) (times []time.Duration) {
	inBubble(t, config, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		other, _ := w.pipe(w.a, w.b)
		start := time.Now()
		for i := range 50 {
			w.write(s, []byte{byte(i)})
			if disturbed {
				w.write(other, make([]byte, i+1))
			}
		}
		for i := range 50 {
			if _, err := r.ReadFunc(1, func(p []byte) {
				if p[0] != byte(i) {
					w.Errorf("piece %d is %d", i, p[0])
				}
			}); err != nil {
				w.Fatal(err)
			}
			times = append(times, time.Since(start))
		}
	})
	return times
}

func TestReplay(t *testing.T) {
	config := sim.Config{Seed: 7, Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.1}
	equal := func(a, b []time.Duration) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return len(a) == len(b)
	}
	first := deliveries(t, config, false)
	if again := deliveries(t, config, false); !equal(first, again) {
		t.Errorf("the same seed gives different times:\n%v\n%v", first, again)
	}
	if beside := deliveries(t, config, true); !equal(first, beside) {
		t.Errorf("another pipe changes the times:\n%v\n%v", first, beside)
	}
	config.Seed++
	if other := deliveries(t, config, false); equal(first, other) {
		t.Errorf("another seed gives the same times: %v", first)
	}
	if last := first[len(first)-1]; last < 30*time.Millisecond {
		t.Errorf("50 pieces took %v, want time for retransmissions", last)
	}
}

func TestLossDelaysOnlyItsPipe(t *testing.T) {
	// Of 40 pipes, each with one piece, some lose it and most do not.
	inBubble(t, sim.Config{Delay: 10 * time.Millisecond, Loss: 0.2}, func(w *world) {
		late := 0
		for range 40 {
			s, r := w.pipe(w.a, w.b)
			start := time.Now()
			w.write(s, []byte("once"))
			if _, err := r.ReadFunc(4, func([]byte) {}); err != nil {
				w.Fatal(err)
			}
			switch took := time.Since(start); (took - 10*time.Millisecond) % (21 * time.Millisecond) {
			case 0:
				if took > 10*time.Millisecond {
					late++
				}
			default:
				w.Errorf("a piece took %v, want 10ms and 21ms for each loss", took)
			}
		}
		if late < 2 || late > 20 {
			w.Errorf("%d of 40 pieces came late, want about 8", late)
		}
	})
}

func TestCloseOfNetworkReturnsAllCalls(t *testing.T) {
	inBubble(t, sim.Config{Delay: time.Second}, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		unused, err := w.network.Host("c").Listen(1)
		if err != nil {
			w.Fatal(err)
		}
		socket, err := w.network.Host("c").PacketConn(1)
		if err != nil {
			w.Fatal(err)
		}
		w.network.Partition("c")
		calls := []func() error{
			func() error { _, err := s.Write(make([]byte, 1<<20)); return err },
			func() error { _, err := io.ReadFull(r, make([]byte, 1<<20)); return err },
			func() error { _, err := w.a.AcceptPipe(w.Context()); return err },
			func() error { _, err := unused.Accept(w.Context()); return err },
			func() error { _, err := unused.Dial(w.Context(), "a:1", ""); return err },
			func() error { _, _, err := socket.ReadFrom(make([]byte, 1)); return err },
		}
		results := make(chan error, len(calls))
		for _, call := range calls {
			go func() { results <- call() }()
		}
		synctest.Wait()
		if len(results) > 0 {
			w.Fatalf("a call that should block returns %v", <-results)
		}
		w.network.Close()
		synctest.Wait()
		if got := len(results); got != len(calls) {
			w.Errorf("%d of %d blocked calls have returned", got, len(calls))
		}
		for range len(results) {
			if err := <-results; err == nil {
				w.Error("a blocked call succeeds after Network.Close")
			}
		}
		if _, err := w.network.Host("d").Listen(1); !errors.Is(err, transport.ErrClosed) {
			w.Errorf("Listen on a closed network: %v, want %v", err, transport.ErrClosed)
		}
	})
}

func TestContentWithAllFaults(t *testing.T) {
	config := sim.Config{Seed: 3, Delay: time.Millisecond, Jitter: 3 * time.Millisecond, Rate: 50e6, Loss: 0.1}
	inBubble(t, config, func(w *world) {
		s, r := w.pipe(w.a, w.b)
		want := make([]byte, 2<<20)
		for i := range want {
			want[i] = byte(i * i >> 7)
		}
		var group sync.WaitGroup
		defer group.Wait()
		group.Go(func() {
			s.Write(want)
			s.Close()
		})
		group.Go(func() {
			for range 10 {
				time.Sleep(7 * time.Millisecond)
				w.network.Partition("b")
				time.Sleep(3 * time.Millisecond)
				w.network.Heal()
			}
		})
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			w.Errorf("read %d bytes, %v, want the %d written", len(got), err, len(want))
		}
	})
}
