package nexar_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSubOutOfStep: a rank that has created a different number of communicators cannot create the
// next one with the others, and the parent still works.
func TestSubOutOfStep(t *testing.T) {
	askew := worldtest.Local(t, 3, nexar.Config{})
	worldtest.OnAll(t, askew, func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			nexar.AddChild(c)
		}
		if child, err := c.Sub(t.Context(), []int{1, 2}); child != nil || !errors.Is(err, nexar.ErrInvalidRank) {
			return fmt.Errorf("got %v, want %w", err, nexar.ErrInvalidRank)
		}
		return nil
	})
	worldtest.OnAll(t, askew, func(_ int, c *nexar.Comm) error { return c.Barrier(t.Context()) })
}

// TestSyncWithoutState: ranks without the state receive it from a rank that has it; if none has it,
// the error is ErrNoState.
func TestSyncWithoutState(t *testing.T) {
	worldtest.OnAll(t, worldtest.Local(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		nexar.HasState(c).Store(rank == 2)
		x := []int32{int32(rank)}
		if err := nexar.Sync(t.Context(), c, x); err != nil || x[0] != 2 || !nexar.HasState(c).Load() {
			return fmt.Errorf("state %v (error %v), want that of rank 2", x, err)
		}
		if err := c.Barrier(t.Context()); err != nil {
			return err
		}
		nexar.HasState(c).Store(false)
		if err := nexar.Sync(t.Context(), c, x); !errors.Is(err, nexar.ErrNoState) {
			return fmt.Errorf("got error %v, want %v", err, nexar.ErrNoState)
		}
		return c.Barrier(t.Context())
	})
}

// BenchmarkTrace measures the cost of tracing an all-reduce of 8 bytes between two
// ranks that share memory. Rounds with and without tracing alternate; the medians of
// both are reported, in nanoseconds per operation.
func BenchmarkTrace(b *testing.B) {
	const perRound = 2000
	comms := worldtest.Local(b, 2, nexar.Config{})
	round := func(on bool) float64 {
		for _, c := range comms {
			nexar.Trace(c, on)
		}
		start := time.Now()
		worldtest.OnAll(b, comms, func(_ int, c *nexar.Comm) error {
			x := make([]float32, 2)
			for range perRound {
				if err := nexar.AllReduce(context.Background(), c, x, nexar.Sum); err != nil {
					return err
				}
			}
			return nil
		})
		return float64(time.Since(start)) / perRound
	}
	var with, without []float64
	for b.Loop() {
		with = append(with, round(true))
		without = append(without, round(false))
	}
	slices.Sort(with)
	slices.Sort(without)
	on, off := with[len(with)/2], without[len(without)/2]
	b.ReportMetric(on, "with-ns")
	b.ReportMetric(off, "without-ns")
	b.ReportMetric(100*(on/off-1), "%more")
}
