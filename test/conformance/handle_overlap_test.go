package conformance

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// took returns the time until all ranks have done f.
func took(t *testing.T, comms []*nexar.Comm, f func(c *nexar.Comm) error) time.Duration {
	t.Helper()
	began := time.Now()
	worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error { return f(c) })
	return time.Since(began)
}

// TestComputationOverlaps: computing during a collective takes about as long as the
// longer of the two, and not their sum.
func TestComputationOverlaps(t *testing.T) {
	for _, count := range []int{2, 1 << 20} {
		worldtest.InFakeTime(t, 4, func(t *testing.T, w *worldtest.World, _ *sim.Network) {
			comms := w.Comms
			ctx := t.Context()
			alone := took(t, comms, func(c *nexar.Comm) error { return nexar.AllReduce(ctx, c, make([]float32, count), nexar.Sum) })
			for _, computing := range []time.Duration{alone / 4, alone, 3 * alone} {
				both := took(t, comms, func(c *nexar.Comm) error {
					h := nexar.StartAllReduce(ctx, c, make([]float32, count), nexar.Sum)
					time.Sleep(computing)
					return h.Wait()
				})
				if longer := max(alone, computing); both > longer+alone/10 {
					t.Errorf("%d elements take %v, computing %v, and both together %v", count, alone, computing, both)
				}
			}
		})
	}
}

// TestHandlesOverlap: many short collectives at once take little longer than one.
func TestHandlesOverlap(t *testing.T) {
	worldtest.InFakeTime(t, 4, func(t *testing.T, w *worldtest.World, _ *sim.Network) {
		comms := w.Comms
		ctx := t.Context()
		alone := took(t, comms, func(c *nexar.Comm) error { return nexar.AllReduce(ctx, c, make([]float32, 2), nexar.Sum) })
		many := took(t, comms, func(c *nexar.Comm) error {
			handles := make([]*nexar.Handle, 64)
			for i := range handles {
				handles[i] = nexar.StartAllReduce(ctx, c, make([]float32, 2), nexar.Sum)
			}
			return nexar.WaitAll(handles...)
		})
		if many > 2*alone {
			t.Errorf("64 all-reduces at once take %v, one takes %v", many, alone)
		}
	})
}
