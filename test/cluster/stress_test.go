package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar"
)

// stress makes all collectives and messages between all pairs of ranks for
// [command].Duration, and reports the duration of each.
func stress(ctx context.Context, s *workerState, o command, r *result) error {
	c := s.comm()
	timed := func(what string, f operation, n int) error {
		began := time.Now()
		if err := f(ctx, c, n, r.Rounds); err != nil {
			return fmt.Errorf("%s of %d elements after %v: %w", what, n, time.Since(began), err)
		}
		took := time.Since(began)
		if r.Times = append(r.Times, took); took > 2*time.Second {
			r.Text += fmt.Sprintf("%s of %d elements in %v; ", what, n, took.Round(time.Millisecond))
		}
		return nil
	}
	for began := time.Now(); ; r.Rounds++ {
		for _, n := range []int{1, 1001, 20_011} {
			for _, step := range allOperations() {
				if err := timed(step.name, step.do, n); err != nil {
					return err
				}
			}
		}
		over := []int64{0}
		if c.Rank() == 0 && time.Since(began) > o.Duration {
			over[0] = 1
		}
		if err := nexar.Broadcast(ctx, c, over, 0); err != nil {
			return err
		}
		if over[0] == 1 {
			return nil
		}
	}
}

// allOperations returns the operations of checkWorld.
func allOperations() []struct {
	name string
	do   operation
} {
	return []struct {
		name string
		do   operation
	}{
		{"all_reduce", allReduce}, {"broadcast", broadcast}, {"reduce", reduce},
		{"all_reduce_func", allReduceFunc}, {"gather", gather}, {"all_gather", allGather},
		{"scatter", scatter}, {"reduce_scatter", reduceScatter}, {"all_to_all", allToAll},
		{"scan", scan}, {"exclusive_scan", exclusiveScan}, {"barrier", operations()["barrier"]},
		{"ping-pong", pingPong},
	}
}

// askStatus reports the status of the cluster as "nexar status" prints it.
func askStatus(ctx context.Context, _ *workerState, _ command, r *result) error {
	s, err := nexar.QueryCluster(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	var b strings.Builder
	if _, err := s.WriteTo(&b); err != nil {
		return err
	}
	r.Text = b.String()
	return nil
}
