package mem_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// connect returns both ends of a conn between two names of a new network.
func connect(t *testing.T) (a, b transport.Conn) {
	t.Helper()
	c := newCluster(t, 2)
	t.Cleanup(func() {
		for _, t := range c.Transports {
			t.Close()
		}
	})
	return connectTo(t, c.Transports[0], c.Transports[1])
}

// connectTo returns both ends of a conn from one transport to another.
func connectTo(t *testing.T, from, to transport.Transport) (a, b transport.Conn) {
	t.Helper()
	a, err := from.Dial(t.Context(), to.Addr(), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	b, err = to.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func pipe(t *testing.T, from, to transport.Conn) (transport.Sender, transport.Receiver) {
	t.Helper()
	s, err := from.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := to.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// TestLargeWriteIsSeenInPlace: ReadFunc shows the memory of the sender, after the earlier
// short writes.
func TestLargeWriteIsSeenInPlace(t *testing.T) {
	a, b := connect(t)
	s, r := pipe(t, a, b)
	small, large := []byte{1, 2, 3}, make([]byte, 3<<20)
	written := make(chan error, 1)
	go func() {
		s.Write(small)
		_, err := s.Write(large)
		written <- err
	}()
	if n, err := r.ReadFunc(3, func(p []byte) {
		if &p[0] == &small[0] {
			t.Error("a short write lends its slice")
		}
	}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	off := 0
	if _, err := r.ReadFunc(len(large), func(p []byte) {
		if &p[0] != &large[off] {
			t.Errorf("the view at %d is not the memory of the sender", off)
		}
		if off += len(p); len(p) > 1<<20 {
			t.Errorf("view of %d bytes, want at most 1 MiB", len(p))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// TestInterruptedWriteWaitsForView: an interrupted Write returns after the current view of
// its slice, and before the next one.
func TestInterruptedWriteWaitsForView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := connect(t)
		s, r := pipe(t, a, b)
		var returned atomic.Bool
		go func() {
			n, err := s.Write(make([]byte, 1<<20))
			if n != 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write: got %d, %v, want 1000, the first view", n, err)
			}
			returned.Store(true)
		}()
		n, err := r.ReadFunc(1000, func(p []byte) {
			s.SetWriteDeadline(time.Unix(1, 0))
			time.Sleep(time.Hour)
			if returned.Load() {
				t.Error("Write has returned during a view of its slice")
			}
		})
		if n != 1000 || err != nil {
			t.Errorf("ReadFunc: got %d, %v", n, err)
		}
		// The slice is not shown again, even if the reader is faster than Write.
		r.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := r.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read after the interruption: got %d, %v, want 0 and a missed deadline", n, err)
		}
		if !returned.Load() {
			t.Error("Write has not returned after the view of its slice")
		}
	})
}

// TestDeadlineRemovedAtOnce: a deadline that is removed before a goroutine has seen it
// leaves neither side blocked.
func TestDeadlineRemovedAtOnce(t *testing.T) {
	a, b := connect(t)
	s, r := pipe(t, a, b)
	const total = 4 << 20
	written := make(chan int, 1)
	go func() {
		sum := 0
		for sum < total {
			n, err := s.Write(make([]byte, total-sum))
			if sum += n; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
				break
			}
		}
		written <- sum
	}()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.SetWriteDeadline(time.Unix(1, 0))
			s.SetWriteDeadline(time.Time{})
			runtime.Gosched()
		}
	}()
	if n, err := r.ReadFunc(total, func([]byte) {}); n != total || err != nil {
		t.Errorf("ReadFunc: got %d, %v", n, err)
	}
	if got := <-written; got != total {
		t.Errorf("wrote %d bytes, want %d", got, total)
	}
	close(stop)
	<-stopped
}

// TestPanicInView: a panic during a view does not block Write.
func TestPanicInView(t *testing.T) {
	a, b := connect(t)
	s, r := pipe(t, a, b)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		s.Write(make([]byte, 1<<20))
	}()
	func() {
		defer func() { recover() }()
		r.ReadFunc(10, func([]byte) { panic("view") })
	}()
	a.Close()
	<-returned
}

// TestSteadyStateAllocatesNothing checks short and long writes, Read and ReadFunc.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	a, b := connect(t)
	there, thereReader := pipe(t, a, b)
	back, backReader := pipe(t, b, a)
	for _, size := range []int{8, 4096, 64 << 10, 1 << 20} {
		go func() {
			buf := make([]byte, size)
			for range 101 {
				thereReader.ReadFunc(size, func([]byte) {})
				back.Write(buf)
			}
		}()
		buf := make([]byte, size)
		if got := testing.AllocsPerRun(100, func() {
			there.SetWriteDeadline(time.Now().Add(time.Hour))
			there.Write(buf)
			for n := 0; n < size; {
				k, err := backReader.Read(buf)
				if err != nil {
					t.Error(err)
					return
				}
				n += k
			}
		}); got != 0 {
			t.Errorf("a round trip of %d bytes allocates %v times", size, got)
		}
	}
}

func TestNames(t *testing.T) {
	network := mem.NewNetwork()
	if _, err := network.Listen(""); err == nil {
		t.Error("Listen succeeds with the empty name")
	}
	first, err := network.Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := network.Listen("a"); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("second Listen at one name: %v, want an error with the name", err)
	}
	first.Close()
	second, err := network.Listen("a")
	if err != nil {
		t.Fatalf("Listen at the name of a closed transport: %v", err)
	}
	first.Close()
	if _, err := network.Listen("a"); err == nil {
		t.Error("a second Close of the first transport releases the name of the second")
	}
	network.Kill("unknown")
	network.Kill("a")
	if _, err := second.Accept(t.Context()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Accept of a killed transport: %v, want %v", err, transport.ErrClosed)
	}
}

// TestBacklog: OpenPipe blocks when the backlog is full, and a cancelled call leaves no
// pipe behind.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := connect(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		opened := 0
		for {
			if _, err := a.OpenPipe(ctx); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				break
			}
			opened++
		}
		for range opened {
			if _, err := b.AcceptPipe(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.AcceptPipe(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("AcceptPipe after a cancelled OpenPipe: %v, want a missed deadline", err)
		}
	})
}
