package shmexec

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestManyRanks runs the algorithms for many ranks, in turn with others, in the same memory.
func TestManyRanks(t *testing.T) {
	n := 72
	if testing.Short() {
		n = 20
	}
	memories, _ := newMemories(n, 32<<10)
	fingerprint, ran := uint32(0), 0
	for _, c := range plan.Collectives() {
		for _, a := range plan.AlgorithmsOn(c, plan.Groups(n)) {
			isForMany := slices.Contains([]string{"leader", "groups", "groups-shares", "flat", "direct"}, a.Name)
			if !isForMany || !a.Fits(n) {
				continue
			}
			for _, root := range roots(c, n) {
				fingerprint++
				ran++
				pieces := 1 + int(fingerprint)%3
				if c == plan.Barrier || !a.Single {
					pieces = 1
				}
				trial{c, a, n, root, pieces, 5, 0}.run(t, memories, fingerprint)
			}
		}
	}
	if ran < 15 {
		t.Errorf("only %d algorithms have run", ran)
	}
}

// TestNeighborsNoticeMismatch: if one rank makes another call, and neither it nor the ranks that it
// sends to wait for each other, a neighbor or the rank itself notices it.
func TestNeighborsNoticeMismatch(t *testing.T) {
	const n, odd = 7, 3
	for range 50 {
		memories, _ := newMemories(n, 1<<10)
		errs := make([]error, n)
		var ranks sync.WaitGroup
		for rank := range n {
			ranks.Go(func() {
				root := 0
				if rank == odd {
					root = odd
				}
				plans := plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(n, root)
				r := newShort(memories[rank], NewSchedule(plans).Compile(rank), 1)
				r.print = uint32(root)
				errs[rank] = memories[rank].run(t.Context(), r)
			})
		}
		ranks.Wait()
		for rank, err := range errs {
			if m, ok := errors.AsType[*MismatchError](err); ok && m.Rank != odd && rank != odd {
				t.Errorf("rank %d: %v, want rank %d", rank, err, odd)
			}
		}
		if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
			t.Fatal("no rank has noticed")
		}
	}
}

// TestWaitsForNeighbors: a rank that no other reads is still at most Depth pieces ahead of its
// neighbors.
func TestWaitsForNeighbors(t *testing.T) {
	const n, late = 4, 3
	memories, _ := newMemories(n, 1<<10)
	plans := make([]plan.Plan, n)
	for rank := range plans {
		plans[rank] = plan.Plan{Chunks: 1}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, n)
	for rank := range late {
		go func() {
			r := newShort(memories[rank], NewSchedule(plans).Compile(rank), 1)
			for range Depth + 1 {
				if err := memories[rank].run(ctx, r); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	if err := <-ended; err != nil { // rank 1
		t.Fatal(err)
	}
	for _, rank := range []int{0, 2} {
		for memories[rank].waiting() != late {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	for range late - 1 {
		if err := <-ended; err != context.Canceled {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
}
