//go:build !race

package rpc

import (
	"context"
	"testing"
	"time"
)

// A call with its answer makes few allocations, four of them in the fabric. Under the race
// detector, pools drop items on purpose.
func TestCallAllocations(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.register(t, "echo", echo)
	args := pattern(64)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for name, test := range map[string]struct {
		ctx context.Context
		max float64
	}{
		"without a deadline": {context.Background(), 12},
		"with a deadline":    {ctx, 22},
	} {
		got := testing.AllocsPerRun(200, func() {
			if _, err := w.services[0].Call(test.ctx, 1, "echo", args); err != nil {
				t.Error(err)
			}
		})
		if got > test.max {
			t.Errorf("%s: %v allocations, at most %v are expected", name, got, test.max)
		}
	}
}
