package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// sum is an all-reduce on the communicator of the world.
func sum(ctx context.Context, n *nexar.Node) error {
	return nexar.AllReduce(ctx, n.World(), []int{1}, nexar.Sum)
}

// nextEpoch waits for the next world in a loop over Epochs.
func nextEpoch(ctx context.Context, n *nexar.Node) error {
	old := n.World()
	for c, err := range n.Epochs(ctx) {
		if err != nil || c != old {
			return err
		}
	}
	return nil
}

// exclude excludes rank 2.
func exclude(ctx context.Context, n *nexar.Node) error {
	_, err := n.World().Exclude(ctx, []int{2})
	return err
}

// inWorld calls a function on each rank of a world of its own, in fake time. During the calls it calls meanwhile, which may be nil.
func inWorld(t *testing.T, meanwhile func(ctx context.Context, cancel func(), nodes []*nexar.Node), calls ...func(ctx context.Context, n *nexar.Node) error) (errs []error) {
	errs = make([]error, len(calls))
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, len(calls))
		defer w.Close()
		nodes := w.JoinHosts(t, len(calls))
		ctx, cancel := context.WithCancel(w.Ctx)
		defer cancel()
		var working sync.WaitGroup
		for rank, call := range calls {
			working.Go(func() { errs[rank] = call(ctx, nodes[rank]) })
		}
		if meanwhile != nil {
			meanwhile(ctx, cancel, nodes)
		}
		working.Wait()
		for _, n := range nodes {
			n.Close()
		}
	})
	return errs
}

// running returns the names of the calls that a node is in.
func running(n *nexar.Node) (names []string) {
	for _, o := range n.Trace().Operations {
		if o.Running() {
			names = append(names, o.Op)
		}
	}
	return names
}

// TestExcludeMismatch: rank 0 excludes rank 2, and rank 1 calls an all-reduce, which rank 2 calls, too, or not. All ranks that are in a
// call learn both calls. It is no mismatch that ranks 0 and 1 exclude rank 2 at different times, and that rank 2 calls an all-reduce.
func TestExcludeMismatch(t *testing.T) {
	idle := func(context.Context, *nexar.Node) error { return nil }
	for name, third := range map[string]func(ctx context.Context, n *nexar.Node) error{"in the same call": sum, "in no call": idle} {
		for rank, err := range inWorld(t, nil, exclude, sum, third) {
			m, ok := errors.AsType[*nexar.MismatchError](err)
			if rank == 2 && name == "in no call" {
				continue
			}
			if !ok || m.Rank != 0 || m.Peer != 1 || m.Call.Op != "exclude" || m.PeerCall.Op != "all_reduce" {
				t.Errorf("rank 2 is %s: rank %d: %v, want a mismatch of exclude on rank 0 and all_reduce on rank 1", name, rank, err)
			}
		}
	}
	late := func(ctx context.Context, n *nexar.Node) error {
		time.Sleep(500 * time.Millisecond)
		return exclude(ctx, n)
	}
	for rank, err := range inWorld(t, nil, exclude, late, sum) {
		_, differs := errors.AsType[*nexar.MismatchError](err)
		if rank < 2 && err != nil || rank == 2 && (err == nil || differs) {
			t.Errorf("ranks 0 and 1 exclude rank 2: rank %d: %v", rank, err)
		}
	}
}

// TestEpochsMismatch: after Reconfigure has returned true, one rank goes to the next iteration of Epochs, and the other one calls an
// all-reduce.
func TestEpochsMismatch(t *testing.T) {
	reconfigure := func(next func(ctx context.Context, n *nexar.Node) error) func(ctx context.Context, n *nexar.Node) error {
		return func(ctx context.Context, n *nexar.Node) error {
			for changed := false; !changed; time.Sleep(time.Millisecond) {
				var err error
				if changed, err = n.Reconfigure(ctx); err != nil {
					return err
				}
			}
			return next(ctx, n)
		}
	}
	leave := func(ctx context.Context, _ func(), nodes []*nexar.Node) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		_ = nodes[1].Leave(ctx) // It is a wish that Reconfigure heeds.
	}
	for rank, err := range inWorld(t, leave, reconfigure(nextEpoch), reconfigure(sum)) {
		m, ok := errors.AsType[*nexar.MismatchError](err)
		if !ok || m.Rank != 0 || m.Peer != 1 || m.Call.Op != "epochs" || m.PeerCall.Op != "all_reduce" {
			t.Errorf("rank %d: %v, want a mismatch of epochs on rank 0 and all_reduce on rank 1", rank, err)
		}
	}
}

// TestEpochsInDeadlock: one rank waits for the next world in Epochs, and the other one in an all-reduce. Traces show both calls, and both
// ranks get a deadlock that names them.
func TestEpochsInDeadlock(t *testing.T) {
	for at, calls := range [][]func(ctx context.Context, n *nexar.Node) error{{nextEpoch, sum}, {sum, nextEpoch}} {
		ops := []string{"epochs", "all_reduce"}
		if at == 1 {
			slices.Reverse(ops)
		}
		errs := inWorld(t, func(_ context.Context, _ func(), nodes []*nexar.Node) {
			time.Sleep(20 * time.Second)
			for rank, n := range nodes {
				if got := running(n); !slices.Equal(got, ops[rank:rank+1]) {
					t.Errorf("the trace of rank %d has the calls %q, want %q", rank, got, ops[rank])
				}
			}
		}, calls...)
		for rank, err := range errs {
			d, ok := errors.AsType[*nexar.DeadlockError](err)
			if !ok || len(d.Waits) != 2 || d.Waits[0].Op != ops[0] || d.Waits[1].Op != ops[1] || d.Waits[0].WaitsFor != 1 || d.Waits[1].WaitsFor != 0 {
				t.Errorf("rank %d: %v, want a deadlock of %s on rank 0 and %s on rank 1", rank, err, ops[0], ops[1])
			}
		}
	}
}

// TestEpochsTimeout: the timeout of a collective names the rank in Epochs with its call. Its loop has a deadline, so it is in no deadlock.
func TestEpochsTimeout(t *testing.T) {
	require.NoRace(t, "an hour of fake time is millions of timers, and other tests have the same goroutines")
	limited := func(ctx context.Context, n *nexar.Node) error {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		return nextEpoch(ctx, n)
	}
	err := inWorld(t, nil, limited, sum)[1]
	late, ok := errors.AsType[*nexar.TimeoutError](err)
	if !ok || len(late.Late) != 1 || late.Late[0].Rank != 0 || !late.Late[0].Active || late.Late[0].Call.Op != "epochs" {
		t.Errorf("%v, want a timeout because of rank 0 in epochs", err)
	}
}

// TestEpochsAlone: ranks that all wait for the next world are in no deadlock.
func TestEpochsAlone(t *testing.T) {
	require.NoRace(t, "minutes of fake time are many timers, and other tests follow epochs")
	errs := inWorld(t, func(_ context.Context, cancel func(), nodes []*nexar.Node) {
		time.Sleep(10 * time.Minute)
		for rank, n := range nodes {
			if err := n.World().Err(); err != nil {
				t.Errorf("rank %d: %v, want none", rank, err)
			}
			if got := running(n); !slices.Equal(got, []string{"epochs"}) {
				t.Errorf("the trace of rank %d has the calls %q, want epochs", rank, got)
			}
		}
		cancel()
	}, nextEpoch, nextEpoch, nextEpoch)
	for rank, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("rank %d: %v, want the end of the context", rank, err)
		}
	}
}

// TestWorldDeadline: calls that wait for the next view, or for all ranks, name the ranks that they waited for when their deadline passes.
func TestWorldDeadline(t *testing.T) {
	for want, call := range map[string]func(ctx context.Context, n *nexar.Node) error{
		"Rank 0 waits in epochs #1 for 3 s": nextEpoch,
		" #1 for rank 1":                    exclude,
		"in reconfigure #1 for rank": func(ctx context.Context, n *nexar.Node) error {
			_, err := n.Reconfigure(ctx)
			return err
		},
	} {
		late := func(context.Context, *nexar.Node) error {
			time.Sleep(5 * time.Second)
			return nil
		}
		errs := inWorld(t, nil, func(ctx context.Context, n *nexar.Node) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			return call(ctx, n)
		}, late, late)
		if e, ok := errors.AsType[*nexar.DeadlineError](errs[0]); !ok || !errors.Is(e, context.DeadlineExceeded) || !strings.Contains(plain(e.Sentence), want) {
			t.Errorf("got %v, want a DeadlineError with %q", errs[0], want)
		}
	}
}
