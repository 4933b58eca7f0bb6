//go:build !race

package nexar

import (
	"context"
	"runtime"
	"testing"
)

// handleAllocations bounds the allocations of a short StartAllReduce and Wait over mem: the
// Handle, its channel, the task, and two functions for its goroutine. A blocking all-reduce does
// not allocate; see TestAllocations.
const handleAllocations = 5

func TestHandleAllocations(t *testing.T) {
	const ranks, runs = 4, 2000
	comms := localCluster(t, ranks, Config{})
	ctx := context.Background()
	loop := func() {
		onAll(t, comms, func(_ int, c *Comm) error {
			x := make([]float32, 2)
			for range runs {
				if err := StartAllReduce(ctx, c, x, Sum).Wait(); err != nil {
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
