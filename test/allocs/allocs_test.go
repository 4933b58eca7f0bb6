//go:build !race

package allocs

import (
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
)

// TestCalls: short calls between two ranks allocate nothing, on either rank.
func TestCalls(t *testing.T) {
	comms, err := nexar.Local(t.Context(), 2, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		var wg sync.WaitGroup
		for _, c := range comms {
			wg.Go(func() { c.Close() })
		}
		wg.Wait()
	}()
	ctx := t.Context()
	type buffers struct{ data, other []float32 }
	calls := map[string]func(c *nexar.Comm, b *buffers) error{
		"barrier":    func(c *nexar.Comm, _ *buffers) error { return c.Barrier(ctx) },
		"all_reduce": func(c *nexar.Comm, b *buffers) error { return nexar.AllReduce(ctx, c, b.data, nexar.Sum) },
		"broadcast":  func(c *nexar.Comm, b *buffers) error { return nexar.Broadcast(ctx, c, b.data, 1) },
		"reduce":     func(c *nexar.Comm, b *buffers) error { return nexar.Reduce(ctx, c, b.data, nexar.Max, 0) },
		"all_gather": func(c *nexar.Comm, b *buffers) error { return nexar.AllGather(ctx, c, b.data, b.other[:1]) },
		"all_to_all": func(c *nexar.Comm, b *buffers) error { return nexar.AllToAll(ctx, c, b.data, b.other) },
		"send and recv": func(c *nexar.Comm, b *buffers) error {
			if c.Rank() == 0 {
				if err := nexar.Send(ctx, c, b.data, 1, 1); err != nil {
					return err
				}
				_, err := nexar.Recv(ctx, c, b.data, 1, 2)
				return err
			}
			if _, err := nexar.Recv(ctx, c, b.data, 0, 1); err != nil {
				return err
			}
			return nexar.Send(ctx, c, b.data, 0, 2)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			const runs = 300
			var other sync.WaitGroup
			other.Go(func() {
				b := &buffers{make([]float32, 2), make([]float32, 2)}
				for range runs + runs + 1 { // AllocsPerRun calls once more
					if err := call(comms[1], b); err != nil {
						t.Error(err)
					}
				}
			})
			b := &buffers{make([]float32, 2), make([]float32, 2)}
			run := func() {
				if err := call(comms[0], b); err != nil {
					t.Error(err)
				}
			}
			for range runs { // The first calls allocate what later ones use again.
				run()
			}
			allocs := testing.AllocsPerRun(runs, run)
			other.Wait()
			if allocs >= 1 {
				t.Errorf("%v allocations in a call of two ranks, want none", allocs)
			}
		})
	}
}
