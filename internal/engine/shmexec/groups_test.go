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

// TestEveryMismatchIsNoticed: of two ranks with different calls at least one returns an error or waits, whether they read each
// other or not.
func TestEveryMismatchIsNoticed(t *testing.T) {
	calls := []plan.Algorithm{
		{Plan: plan.FlatBroadcast},
		{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBroadcast(rank, size, 1) }},
		{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }},
		{Plan: func(int, int, int) plan.Plan { return plan.Plan{Chunks: 1} }},
	}
	for a := range calls {
		for b := range a {
			for range 20 {
				memories, _ := newMemories(2, 1<<10)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				errs := make([]error, 2)
				var ranks sync.WaitGroup
				for rank, call := range []int{a, b} {
					ranks.Go(func() {
						r := newShort(memories[rank], NewSchedule(calls[call].Plans(2, 0)).Compile(rank), 0)
						r.print = uint32(call)
						errs[rank] = memories[rank].run(ctx, r)
					})
				}
				ranks.Wait()
				cancel()
				if errs[0] == nil && errs[1] == nil {
					t.Fatalf("call %d of rank 0 and call %d of rank 1: no rank has noticed", a, b)
				}
			}
		}
	}
}

// TestCallsWrap: a call is not compared with one of the same number that was made 2³² calls ago.
func TestCallsWrap(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	for call := range uint32(callsKept + 2) {
		root := 0
		if call == 0 {
			root = 1 // It alone shows its calls.
		}
		if call == callsKept+1 {
			for _, m := range memories {
				m.calls -= callsKept + 1
			}
		}
		trial{plan.Broadcast, plan.Algorithm{Plan: plan.FlatBroadcast}, 2, root, 1, 5, 0}.run(t, memories, call)
	}
}
