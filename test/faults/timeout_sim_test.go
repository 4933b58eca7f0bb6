package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestTimeoutError: a TimeoutError has the node and the last call of each late rank. The time is fake: a process that
// stops for most of the timeout has no time left to ask the late rank for its last call.
func TestTimeoutError(t *testing.T) {
	cfg := nexar.Config{BarrierTimeout: 300 * time.Millisecond}
	worldtest.InFakeTimeWith(t, 3, cfg, func(t *testing.T, w *worldtest.World, _ *sim.Network) {
		timeouts := make([]bool, 2)
		err := worldtest.ForEach(3, func(rank int) error {
			c := w.Comms[rank]
			if err := nexar.AllReduce(t.Context(), c, []int8{1}, nexar.Sum); err != nil || rank == 2 {
				return err
			}
			err := c.Barrier(t.Context())
			if r, ok := errors.AsType[*nexar.RevokedError](err); ok && r.Rank == 1-rank {
				return nil // the other rank timed out first
			}
			timeouts[rank] = true
			return checkTimeout(w, rank, err)
		})
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(timeouts, true) {
			t.Error("both ranks say that the other one timed out first")
		}
	})
}

// checkTimeout checks the error of a barrier that rank 2 has not called after its first all_reduce.
func checkTimeout(w *worldtest.World, rank int, err error) error {
	late, ok := errors.AsType[*nexar.TimeoutError](err)
	switch {
	case !ok || !slices.Equal(late.Waiting, []int{2}) || len(late.Late) != 1:
		return fmt.Errorf("%w, want a TimeoutError for rank 2", err)
	case late.Late[0].Node != w.ID(2) || late.Late[0].Addr != w.Addr(2):
		return fmt.Errorf("%+v, want node %v at %s", late.Late[0], w.ID(2), w.Addr(2))
	case !late.Late[0].Answered || late.Late[0].Active || late.Late[0].Call.Op != "all_reduce" || late.Late[0].Call.Seq != 1:
		return fmt.Errorf("%+v, want all_reduce #1 as the last call", late.Late[0])
	}
	err = w.Comms[rank].Err()
	if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != rank || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("later %w, want a RevokedError of rank %d", err, rank)
	}
	return nil
}
