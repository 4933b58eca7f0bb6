//go:build linux

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

const heapBytes = 8 << 20

// grantHeap registers a slice of the Go heap for writes of the peer. With forget, the library keeps no reference, as a cache of
// registrations by address would. at is the address.
//
//go:noinline
func grantHeap(t *testing.T, c *conn, forget bool) (r *registration, key transport.RemoteKey, at uintptr, alive weak.Pointer[byte]) {
	t.Helper()
	memory := make([]byte, heapBytes)
	reg, err := c.Register(memory)
	if err != nil {
		t.Fatal(err)
	}
	g, err := reg.Grant(0, heapBytes)
	if err != nil {
		t.Fatal(err)
	}
	r = reg.(*registration)
	if forget {
		r.memory, r.region.memory = nil, nil
		if exact := g.(*grant).exact; exact != nil {
			exact.memory = nil
		}
	}
	return r, g.Key(), uintptr(unsafe.Pointer(&memory[0])), weak.Make(&memory[0])
}

// writeHeap lets the peer write, after the heap has returned free memory to the system.
func writeHeap(t *testing.T, from, to *conn, key transport.RemoteKey) {
	t.Helper()
	for range 3 {
		runtime.GC()
		debug.FreeOSMemory()
	}
	// The key is valid when the peer has read something that was sent after the grant.
	s, err := to.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	r, err := from.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := from.WriteRemote(t.Context(), key, 0, bytes.Repeat([]byte{0xEE}, 4096)); err != nil {
		t.Fatal(err)
	}
}

// TestHeapUnderRegistration shows why slices of the heap do not stay registered: the heap returns the pages of unreachable memory, uses the
// addresses with other pages, and the device still writes to the old ones, without an error. A registration of the
// library keeps its slice reachable, so its pages stay, and only mapped memory is cached.
func TestHeapUnderRegistration(t *testing.T) {
	needRDMA(t)
	a, b := newPair(t)
	_, key, at, alive := grantHeap(t, b, true)
	writeHeap(t, a, b, key) // The device accepts it.
	if alive.Value() != nil {
		t.Fatal("the slice without references is reachable")
	}
	// The heap keeps the address, and has new pages there, which the write has not reached. Other slices may use them by now.
	if first := *(*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))); first == 0xEE {
		t.Error("the write has reached the pages of the heap: the danger is not shown")
	}

	r, key, _, alive := grantHeap(t, b, false)
	writeHeap(t, a, b, key)
	if alive.Value() == nil {
		t.Error("a registered slice became unreachable")
	} else if *alive.Value() != 0xEE {
		t.Errorf("the first byte of a registered slice is %#x after the write, want 0xee", *alive.Value())
	}
	r.Deregister()
	b.t.dev.mu.Lock()
	if n := len(b.t.dev.cache); n != 0 {
		t.Errorf("%d registrations are cached, want none of the heap", n)
	}
	b.t.dev.mu.Unlock()
}

// TestIdle: a world that waits needs no event of the device, and RDMA adds no processor time to that of other transports.
func TestIdle(t *testing.T) {
	needRDMA(t)
	plain, _ := idleTime(t, reach[:2], idle)
	enough := plain + idle/20
	used, waits := idleTime(t, reach, enough)
	t.Logf("two idle nodes use %v of processor time in %v, and %v without RDMA; %d waits for events", used, idle, plain, waits)
	if used > enough || waits > 15 {
		t.Errorf("two idle nodes use %v of processor time in %v, and %v without RDMA; %d waits for events, want hardly any", used, idle, plain, waits)
	}
}

const idle = time.Second

// idleTime returns the least processor time of two idle nodes in an interval, and the mean number of their waits for events of the device.
// An emulated processor also counts time that its host takes from it, so there are more than 5 intervals if none needs at most enough.
func idleTime(t *testing.T, reach []string, enough time.Duration) (used time.Duration, waits uint64) {
	var counters Counters
	measured := make(chan struct{})
	inWorld(t, 2, reach, &counters, func(ctx context.Context, node *nexar.Node) error {
		if node.World().Rank() == 0 {
			defer close(measured)
		}
		if err := reduceAll(ctx, node); err != nil {
			return err
		}
		if slices.Contains(reach, Name) {
			if err := wantRDMA(node); err != nil {
				return err
			}
		}
		if node.World().Rank() > 0 {
			<-measured
			return nil
		}
		runtime.GC()
		time.Sleep(500 * time.Millisecond) // The lanes are polled for a while after an operation.
		used = time.Hour
		counted := counters.Waits()
		for n := uint64(1); n <= 5 || n <= 60 && used > enough; n++ {
			before := processorTime()
			time.Sleep(idle)
			used = min(used, processorTime()-before)
			waits = (counters.Waits() - counted) / n
		}
		return nil
	})
	return used, waits
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPolling: goroutines that poll exchange messages without events of the device, which are system calls.
func TestPolling(t *testing.T) {
	const rounds = 1000
	a, b := newPair(t)
	there, here := openPolled(t, a, b), openPolled(t, b, a)
	var before, after uint64
	var both sync.WaitGroup
	both.Go(func() {
		for i := range 2 * rounds {
			if i == rounds {
				before = a.t.cfg.Counters.Waits() + b.t.cfg.Counters.Waits()
			}
			if err := errors.Join(there.write(), here.read()); err != nil {
				t.Error(err)
				break
			}
		}
		after = a.t.cfg.Counters.Waits() + b.t.cfg.Counters.Waits()
	})
	both.Go(func() {
		for range 2 * rounds {
			if err := errors.Join(there.read(), here.write()); err != nil {
				t.Error(err)
				break
			}
		}
	})
	both.Wait()
	t.Logf("%d round trips of polled messages: %d waits for events", rounds, after-before)
	if after != before {
		t.Errorf("%d round trips of polled messages: %d waits for events, want none", rounds, after-before)
	}
}

// A polledPipe is a pipe with a reader that polls.
type polledPipe struct {
	s transport.Sender
	r transport.Poller
}

func openPolled(t *testing.T, from, to *conn) polledPipe {
	t.Helper()
	s, err := from.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := to.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := polledPipe{s, transport.CapabilitiesOf(r).Poller}
	p.r.SetPolling(true)
	return p
}

func (p *polledPipe) write() error {
	for !transport.CapabilitiesOf(p.s).TryWriter.TryWrite(make([]byte, 8)) {
		runtime.Gosched()
	}
	return nil
}

func (p *polledPipe) read() error {
	for n := 0; n < 8; {
		k, err := p.r.TryRead(make([]byte, 8-n))
		if err != nil {
			return err
		}
		n += k
		runtime.Gosched()
	}
	return nil
}

// TestGrowth: registrations, windows and buffers do not grow with the number of operations.
func TestGrowth(t *testing.T) {
	var w worldTransports
	var sizes [2]string
	inWorldWith(t, 2, reach, w.factory, func(ctx context.Context, node *nexar.Node) error {
		v, free, err := nexar.AllocRegistered[float64](50_000)
		if err != nil {
			return err
		}
		defer free()
		for half := range 2 {
			for range 20 {
				if err := nexar.AllReduce(ctx, node.World(), v, nexar.Sum); err != nil {
					return err
				}
				if err := nexar.AllReduce(ctx, node.World(), make([]float64, 70_000), nexar.Sum); err != nil {
					return err
				}
			}
			if err := node.World().Barrier(ctx); err != nil {
				return err
			}
			if node.World().Rank() == 0 {
				sizes[half] = w.sizes()
			}
			if err := node.World().Barrier(ctx); err != nil {
				return err
			}
		}
		return wantRDMA(node)
	})
	wantNoFailure(t, &w.counters)
	t.Logf("after 40 operations: %s; after 80: %s", sizes[0], sizes[1])
	if sizes[0] != sizes[1] {
		t.Errorf("after 40 operations: %s; after 80: %s; want the same", sizes[0], sizes[1])
	}
}

// sizes returns the numbers of resources of the conns, as text.
func (w *worldTransports) sizes() string {
	chunks, grants, writes, queued := 0, 0, 0, 0
	for _, c := range w.conns() {
		c.mu.Lock()
		chunks += len(c.chunks)
		grants += len(c.grants)
		writes += len(c.writes)
		queued += len(c.queue)
		c.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cached := 0
	for _, t := range w.list {
		if t.dev == nil { // It dials the seed.
			continue
		}
		t.dev.mu.Lock()
		cached += len(t.dev.cache)
		t.dev.mu.Unlock()
	}
	return fmt.Sprintf("%d chunks, %d grants, %d writes, %d queued, %d cached registrations", chunks, grants, writes, queued, cached)
}

// TestLockedMemory: without locked memory a conn fails with an error that names the limit, and a world uses other transports.
func TestLockedMemory(t *testing.T) {
	needRDMA(t)
	if os.Getenv("RDMA_TEST_CHILD") != "" {
		limited(t)
		return
	}
	require.Have(t, "root", os.Getuid() == 0, "only root can start a process as another user; root itself has no limit of locked memory")
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "") //nolint:usetesting // another user must reach it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/test", binary, 0o755)); err != nil { //nolint:gosec // another user runs it
		t.Fatal(err)
	}
	cmd := exec.Command(dir+"/test", "-test.run", "^TestLockedMemory$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RDMA_TEST_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "dial") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// limited is the test in a process with a limit that is too small.
func limited(t *testing.T) {
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	const memlock = 8 // RLIMIT_MEMLOCK of all architectures that Go supports on Linux, except MIPS
	if err := syscall.Setrlimit(memlock, &limit); err != nil {
		t.Fatal(err)
	}
	cluster := newCluster(t, 2)
	for _, x := range cluster.Transports {
		t.Cleanup(func() { x.Close() })
	}
	_, err := cluster.Transports[0].Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
	if err == nil || !strings.Contains(err.Error(), "locked memory") {
		t.Errorf("dial: error %v, want one that names the limit of locked memory", err)
	}
	t.Log("dial:", err)
	inWorld(t, 2, reach, new(Counters), func(ctx context.Context, node *nexar.Node) error {
		if err := reduceAll(ctx, node); err != nil {
			return err
		}
		for _, p := range node.Peers() {
			if p.Transport == Name {
				return fmt.Errorf("linked to rank %d over RDMA without locked memory", p.Rank)
			}
		}
		return nil
	})
}
