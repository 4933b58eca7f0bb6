package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar"
)

// endure makes all collectives and messages between all pairs of ranks until a time
// has passed, and reports how long each of them took.
func endure(ctx context.Context, d *desk, o order, r *report) error {
	c := d.comm()
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
			for _, step := range everyOperation() {
				if err := timed(step.name, step.do, n); err != nil {
					return err
				}
			}
		}
		over := []int64{0}
		if c.Rank() == 0 && time.Since(began) > o.Time {
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

// everyOperation lists the operations of checkWorld.
func everyOperation() []struct {
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

// askStatus reports the status of the cluster, as "nexar status" shows it.
func askStatus(ctx context.Context, _ *desk, _ order, r *report) error {
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
