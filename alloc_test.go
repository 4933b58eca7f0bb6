//go:build !race

package nexar

import (
	"context"
	"runtime"
	"testing"
)

// TestAllocations: short collectives over mem do not allocate after the first call. The race
// detector allocates, so this file is not built with it.
func TestAllocations(t *testing.T) {
	const ranks, runs = 4, 2000
	comms := localCluster(t, ranks, Config{})
	ctx := context.Background()
	vectors := make([][]float32, ranks)
	blocks := make([][]float32, ranks)
	for rank := range comms {
		vectors[rank], blocks[rank] = make([]float32, 2), make([]float32, 2*ranks)
	}
	for name, op := range map[string]func(c *Comm) error{
		"barrier":        func(c *Comm) error { return c.Barrier(ctx) },
		"all_reduce":     func(c *Comm) error { return AllReduce(ctx, c, vectors[c.Rank()], Sum) },
		"broadcast":      func(c *Comm) error { return Broadcast(ctx, c, vectors[c.Rank()], 1) },
		"reduce":         func(c *Comm) error { return Reduce(ctx, c, vectors[c.Rank()], Max, 2) },
		"all_gather":     func(c *Comm) error { return AllGather(ctx, c, blocks[c.Rank()], vectors[c.Rank()]) },
		"reduce_scatter": func(c *Comm) error { return ReduceScatter(ctx, c, vectors[c.Rank()], blocks[c.Rank()], Sum) },
		"scan":           func(c *Comm) error { return Scan(ctx, c, vectors[c.Rank()], Sum) },
	} {
		// Ranks run ahead of each other within credit, and payloads received early are
		// buffered; the barriers bound that.
		loop := func(n int) {
			onAll(t, comms, func(_ int, c *Comm) error {
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
	comms := localCluster(t, ranks, Config{})
	each := (int64(heap()) - int64(before)) / ranks
	runtime.KeepAlive(comms)
	t.Logf("%d KiB per rank", each>>10)
	if each > most {
		t.Errorf("a rank takes %d KiB of heap, want at most %d KiB", each>>10, most>>10)
	}
}
