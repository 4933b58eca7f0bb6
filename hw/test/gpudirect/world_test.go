//go:build linux

package gpudirect

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakes are the hardware of a test.
type fakes struct {
	cuda    *cudafake.Fake
	verbs   *verbsfake.Fake
	silence time.Duration // after which a node counts as failed
	timeout time.Duration // of collectives on rank 0; 0 for the default
}

func newFakes(t *testing.T) fakes {
	t.Helper()
	f := fakes{cuda: cudafake.New(t), verbs: verbsfake.New(t), silence: time.Minute}
	f.cuda.Configure(4, 256<<20)
	f.cuda.Direct(true)
	f.verbs.Refuse(false, false)
	t.Cleanup(func() { f.verbs.Hold(false) })
	return f
}

// traffic counts the copies of network cards and GPUs.
type traffic struct {
	read, written uint64 // bytes of memory of GPUs, by network cards
	staged        int    // calls that copy between GPUs and the host
}

func (f fakes) traffic() traffic {
	return traffic{f.verbs.Read(), f.verbs.Written(), f.cuda.Calls("cuMemcpyHtoDAsync_v2") + f.cuda.Calls("cuMemcpyDtoHAsync_v2")}
}

func (a traffic) minus(b traffic) traffic {
	return traffic{a.read - b.read, a.written - b.written, a.staged - b.staged}
}

// A rank is a node of a world in this process, with a GPU of its own.
type rank struct {
	*nexar.Node
	fakes
	t      *testing.T
	gpu    *cuda.Device
	stream device.Stream
	log    *testlog.Buffer
}

func (r *rank) on() nexar.DeviceComm     { return r.World().WithStream(r.stream) }
func (r *rank) me() int                  { return r.World().Rank() }
func (r *rank) wait(ctx context.Context) { _ = r.World().Barrier(ctx) }

// buffer returns memory of the GPU.
func (r *rank) buffer(n int) device.Buffer {
	b, err := r.gpu.Alloc(r.t.Context(), n)
	if err != nil {
		r.t.Error(err)
		panic(err)
	}
	return b
}

// fill writes a pattern to memory of the GPU.
func (r *rank) fill(b device.Buffer, seed int) {
	if err := r.gpu.CopyIn(r.t.Context(), device.Whole(b), pattern(b.Len(), seed)); err != nil {
		r.t.Error(err)
	}
}

// check compares a region of the GPU with a pattern.
func (r *rank) check(what string, region device.Region, want []byte) error {
	got := make([]byte, region.Bytes)
	if err := r.gpu.CopyOut(r.t.Context(), got, region); err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// pattern returns bytes that depend on a seed and their position.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(i+1)*0x9e3779b97f4a7c15+uint64(seed)<<32)
	}
	return b
}

// inWorld calls f on each rank of a world with links over the fake network card.
func inWorld(t *testing.T, fk fakes, world int, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	inWorldOf(t, fk, world, func(int) bool { return true }, f)
}

// inWorldOf is inWorld with RDMA only on the ranks that hasRDMA selects.
func inWorldOf(t *testing.T, fk fakes, world int, hasRDMA func(rank int) bool, f func(ctx context.Context, r *rank) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: world, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	var ranks sync.WaitGroup
	for i := range world {
		ranks.Go(func() {
			r := &rank{fakes: fk, t: t, log: new(testlog.Buffer)}
			cfg := nexar.Config{
				Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: []string{"quic", "tcp"}, Rank: &i, Links: "eager",
				HeartbeatInterval: fk.silence / 8, HeartbeatTimeout: fk.silence, Log: slog.New(slog.NewTextHandler(r.log, nil)),
			}
			if i == 0 {
				cfg.CollectiveTimeout = fk.timeout
			}
			if hasRDMA(i) {
				cfg.Transports = append(cfg.Transports, rdma.Name)
				cfg.Factories = []transport.Factory{rdma.Factory(rdma.Config{Listen: "127.0.0.1:0"})}
			}
			var err error
			if r.Node, err = nexar.Join(ctx, cfg); err != nil {
				t.Error(err)
				return
			}
			defer r.Node.Close()
			if r.gpu, err = cuda.Open(i, cuda.Config{Library: fk.cuda.Path, Cache: -1}); err == nil {
				defer r.gpu.Close()
				r.stream, err = r.gpu.NewStream()
			}
			if err != nil {
				t.Error(err)
				return
			}
			if err := f(ctx, r); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	ranks.Wait()
	if n := fk.verbs.Strays(); n != 0 {
		t.Errorf("the network card has accessed freed memory of a GPU %d times", n)
	}
	if n := fk.verbs.Live(); n != 0 {
		t.Errorf("%d objects of libibverbs are left", n)
	}
}
