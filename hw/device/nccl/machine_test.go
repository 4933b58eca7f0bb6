package nccl_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/internal/require"
)

// onLibraries runs a test with the fakes, and with the libraries of the machine, with the environment of workers.
func onLibraries(t *testing.T, test func(t *testing.T, env []string)) {
	t.Run("fake", func(t *testing.T) { test(t, fakes(t)) })
	t.Run("machine", func(t *testing.T) {
		list, err := cuda.List("")
		require.Have(t, "cuda", err == nil && len(list) > 0, fmt.Sprintf("there is no GPU: %v", err))
		version, err := nccl.Version("")
		require.Have(t, "nccl", err == nil, fmt.Sprint(err))
		t.Logf("%d of %s, NCCL %s", len(list), list[0].Name, version)
		test(t, nil)
	})
}

// onDrivers runs a test with the fake driver, and with that of the machine, without NCCL.
func onDrivers(t *testing.T, test func(t *testing.T, env []string)) {
	t.Run("fake", func(t *testing.T) { test(t, fakes(t)) })
	t.Run("machine", func(t *testing.T) {
		list, err := cuda.List("")
		require.Have(t, "cuda", err == nil && len(list) > 0, fmt.Sprintf("there is no GPU: %v", err))
		t.Logf("%d of %s", len(list), list[0].Name)
		test(t, nil)
	})
}

// shareGPU lets a rank of a process use the GPUs of the machine, and returns the number of its GPU. NCCL does not
// accept two ranks of one host with the same GPU; it takes the processes for different hosts here, which use
// sockets.
func shareGPU(rank int) (number int, err error) {
	list, err := cuda.List("")
	if err != nil {
		return 0, err
	}
	if len(list) > 1 {
		return rank % len(list), nil
	}
	return 0, errors.Join(os.Setenv("NCCL_HOSTID", fmt.Sprint("rank ", rank)), os.Setenv("NCCL_SOCKET_IFNAME", "lo"))
}

// trial is a part of everything.
type trial struct {
	typ   device.Type
	op    nexar.Op
	count int
}

// trials returns types, operations and numbers of elements. The kernels of the fake driver are interpreted, so there vectors are
// shorter.
func trials() (list []trial) {
	long := 1 << 20
	if os.Getenv(cudafake.PathVariable) != "" {
		long = 1 << 15
	}
	for i, typ := range []device.Type{device.Float32, device.Uint8, device.Int32, device.Int64, device.Float64, device.Int16} {
		for j, op := range []nexar.Op{nexar.Sum, nexar.Avg, nexar.Prod, nexar.Max} {
			list = append(list, trial{typ, op, []int{0, 1, 60, 61, 5000}[(i+j)%5]})
		}
	}
	return append(list, trial{device.Float32, nexar.Sum, long})
}

// everything is a worker that runs all collectives. It prints the hash of each result.
func everything(ctx context.Context, r *rank) error {
	n, me := r.comm.Size(), r.comm.Rank()
	for _, tr := range trials() {
		for _, c := range collectives(n, tr.typ, tr.op, tr.count) {
			got, err := r.on(ctx, vector(tr.typ, me, 2*n*tr.count), func(b device.Buffer) error { return c.call(ctx, r.group, b) })
			if err != nil {
				return fmt.Errorf("%s of %+v: %w", c.name, tr, err)
			}
			fmt.Printf("hash %x\n", sha256.Sum256(got))
		}
	}
	return nil
}

// TestCollectivesOfProcesses: all collectives of ranks in processes of two hosts have the results of slices.
func TestCollectivesOfProcesses(t *testing.T) {
	onLibraries(t, collectivesOfProcesses)
	t.Run("peer", func(t *testing.T) {
		onDrivers(t, func(t *testing.T, env []string) { collectivesOfProcesses(t, append(env, withoutNCCL...)) })
	})
}

func collectivesOfProcesses(t *testing.T, env []string) {
	for _, e := range env { // The trials are those of the workers.
		if name, value, _ := strings.Cut(e, "="); name == cudafake.PathVariable {
			t.Setenv(name, value)
		}
	}
	const n = 4
	workers := start(t, n, append(env, workerMode+"=all")...)
	slices, err := nexar.Local(t.Context(), n, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ranks := make([]*rank, n)
	for i, c := range slices {
		defer c.Close()
		ranks[i] = &rank{comm: c}
	}
	stream, _ := host.Device{}.NewStream()
	start := time.Now()
	for _, tr := range trials() {
		for _, c := range collectives(n, tr.typ, tr.op, tr.count) {
			want := make([]string, n)
			each(t, ranks, func(i int, r *rank) error {
				data := vector(tr.typ, i, 2*n*tr.count)
				err := c.call(t.Context(), r.comm.WithStream(stream), host.Of(data))
				want[i] = fmt.Sprintf("%x", sha256.Sum256(data))
				return err
			})
			for i, w := range workers {
				if got := strings.TrimSpace(w.line(t, "hash")); got != want[i] {
					t.Errorf("%s of %+v: rank %d has a wrong result", c.name, tr, i)
				}
			}
		}
	}
	t.Logf("%d trials in %v", len(trials()), time.Since(start).Round(time.Millisecond))
	end(t, workers)
}
