//go:build !race

package api

import (
	"context"
	"runtime"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestAllocations: short collectives over mem do not allocate after the first call. The race
// detector allocates, so this file is not built with it.
func TestAllocations(t *testing.T) {
	const ranks, runs = 4, 2000
	comms := worldtest.Local(t, ranks, nexar.Config{})
	ctx := context.Background()
	vectors := make([][]float32, ranks)
	blocks := make([][]float32, ranks)
	for rank := range comms {
		vectors[rank], blocks[rank] = make([]float32, 2), make([]float32, 2*ranks)
	}
	for name, op := range map[string]func(c *nexar.Comm) error{
		"barrier":    func(c *nexar.Comm) error { return c.Barrier(ctx) },
		"all_reduce": func(c *nexar.Comm) error { return nexar.AllReduce(ctx, c, vectors[c.Rank()], nexar.Sum) },
		"broadcast":  func(c *nexar.Comm) error { return nexar.Broadcast(ctx, c, vectors[c.Rank()], 1) },
		"reduce":     func(c *nexar.Comm) error { return nexar.Reduce(ctx, c, vectors[c.Rank()], nexar.Max, 2) },
		"all_gather": func(c *nexar.Comm) error { return nexar.AllGather(ctx, c, blocks[c.Rank()], vectors[c.Rank()]) },
		"reduce_scatter": func(c *nexar.Comm) error {
			return nexar.ReduceScatter(ctx, c, vectors[c.Rank()], blocks[c.Rank()], nexar.Sum)
		},
		"scan": func(c *nexar.Comm) error { return nexar.Scan(ctx, c, vectors[c.Rank()], nexar.Sum) },
	} {
		// Ranks run ahead of each other within credit, and payloads received early are
		// buffered; the barriers bound that.
		loop := func(n int) {
			worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
				for i := range n {
					if err := op(c); err != nil {
						return err
					}
					if i%8 == 0 {
						if err := c.Barrier(ctx); err != nil {
							return err
						}
					}
				}
				return nil
			})
		}
		loop(runs)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		loop(runs)
		runtime.ReadMemStats(&after)
		perCall := float64(after.Mallocs-before.Mallocs) / (ranks * runs)
		t.Logf("%s: %.4f allocations per call and rank", name, perCall)
		if perCall > 0.05 {
			t.Errorf("%s: %.2f allocations per call and rank, want none", name, perCall)
		}
	}
}

// TestLocalMemory bounds the heap of an idle rank of Local.
func TestLocalMemory(t *testing.T) {
	const ranks, most = 8, 3 << 19
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	comms := worldtest.Local(t, ranks, nexar.Config{})
	each := (int64(heap()) - int64(before)) / ranks
	runtime.KeepAlive(comms)
	t.Logf("%d KiB per rank", each>>10)
	if each > most {
		t.Errorf("a rank takes %d KiB of heap, want at most %d KiB", each>>10, most>>10)
	}
}

// handleAllocations bounds the allocations of a short StartAllReduce and Wait over mem: the
// Handle, its channel, the task, and two functions for its goroutine. A blocking all-reduce does
// not allocate; see TestAllocations.
const handleAllocations = 5

func TestHandleAllocations(t *testing.T) {
	const ranks, runs = 4, 2000
	comms := worldtest.Local(t, ranks, nexar.Config{})
	ctx := context.Background()
	loop := func() {
		worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
			x := make([]float32, 2)
			for range runs {
				if err := nexar.StartAllReduce(ctx, c, x, nexar.Sum).Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	loop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	loop()
	runtime.ReadMemStats(&after)
	perCall := float64(after.Mallocs-before.Mallocs) / (ranks * runs)
	t.Logf("%.2f allocations per call and rank", perCall)
	if perCall > handleAllocations+0.5 {
		t.Errorf("%.2f allocations per call and rank, want at most %d", perCall, handleAllocations)
	}
}

// TestVecAllocatesNoCopy: 64 MiB in 16 long regions are sent and received with few allocations,
// and thus without a copy. A pipe copies unacknowledged bytes while TCP retransmits, which also
// happens on a busy machine, so one of five transfers must pass. The simulated network stores
// packets in flight and the race detector allocates, so both are excluded.
func TestVecAllocatesNoCopy(t *testing.T) {
	const parts, part = 16, 4 << 20
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.QUIC(), worldtest.TLS(), worldtest.TCP(), worldtest.SHM()} {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
			defer cancel()
			var regions [2][][]byte
			for rank := range regions {
				for range parts {
					regions[rank] = append(regions[rank], make([]byte, part))
				}
			}
			once := func() {
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == 0 {
						return nexar.SendVec(ctx, c, regions[0], 1, 0)
					}
					_, err := nexar.RecvVec(ctx, c, regions[1], 0, 0)
					return err
				})
			}
			once()
			for range 5 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				once()
				runtime.ReadMemStats(&after)
				bytes := after.TotalAlloc - before.TotalAlloc
				t.Logf("%d bytes allocated in %d pieces", bytes, after.Mallocs-before.Mallocs)
				if bytes <= parts*part/4 {
					return
				}
			}
			t.Errorf("each of five transfers of %d bytes allocated more than a quarter of that", parts*part)
		})
	}
}
