package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// leave is a Leave.
func leave(ctx context.Context, n *nexar.Node) error { return n.Leave(ctx) }

// leaveInLoop calls Leave in the body of the loop over Epochs.
func leaveInLoop(ctx context.Context, n *nexar.Node) error {
	for _, err := range n.Epochs(ctx) {
		if err != nil {
			return err
		}
		return n.Leave(ctx)
	}
	return nil
}

// TestLeaveWithoutLoop: no other goroutine ranges over Epochs while a rank calls Leave. Traces show the call. It ends with a deadlock of that
// rank alone, after which the rank takes part in the collective that the others have waited in.
func TestLeaveWithoutLoop(t *testing.T) {
	const limit = time.Minute // the default of DeadlockTimeout
	for name, call := range map[string]func(ctx context.Context, n *nexar.Node) error{"no loop": leave, "in the body of the loop": leaveInLoop} {
		var left error
		began := time.Now()
		var took time.Duration
		errs := inWorld(t, func(_ context.Context, _ func(), nodes []*nexar.Node) {
			began = time.Now()
			time.Sleep(limit / 2)
			if got := running(nodes[1]); !slices.Equal(got, []string{"leave"}) {
				t.Errorf("%s: the trace has the calls %q, want leave", name, got)
			}
		}, sum, func(ctx context.Context, n *nexar.Node) error {
			left = call(ctx, n)
			took = time.Since(began)
			if got := running(n); len(got) > 0 {
				t.Errorf("%s: the trace has the calls %q after Leave, want none", name, got)
			}
			return sum(ctx, n)
		}, sum)
		d, ok := errors.AsType[*nexar.DeadlockError](left)
		if !ok || d.Ranks != 1 || d.Waits[0].Rank != 1 || d.Waits[0].WaitsFor != 1 || d.Waits[0].Op != "leave" || took != limit {
			t.Errorf("%s: %v after %v, want a deadlock of rank 1 after %v", name, left, took, limit)
		}
		const remedy = "for itself in leave for 60 s: a deadlock: on another goroutine, range over Epochs and call Reconfigure after each step"
		if left == nil || !strings.Contains(left.Error(), remedy) {
			t.Errorf("%s: %v, want %q", name, left, remedy)
		}
		for rank, err := range errs {
			if err != nil {
				t.Errorf("%s: rank %d: %v", name, rank, err)
			}
		}
	}
}

// TestLeaveTimeout: the timeout of a collective names the rank in Leave with its call.
func TestLeaveTimeout(t *testing.T) {
	require.NoRace(t, "an hour of fake time is millions of timers, and other tests have the same goroutines")
	err := inWorld(t, nil, leaveSlowly, sum)[1]
	late, ok := errors.AsType[*nexar.TimeoutError](err)
	if !ok || len(late.Late) != 1 || late.Late[0].Rank != 0 || !late.Late[0].Active || late.Late[0].Call.Op != "leave" {
		t.Errorf("%v, want a timeout because of rank 0 in leave", err)
	}
}

// leaveSlowly calls Leave on another goroutine than its loop, which works for an hour.
func leaveSlowly(ctx context.Context, n *nexar.Node) error {
	left := make(chan error, 1)
	for _, err := range n.Epochs(ctx) {
		if err != nil {
			return err
		}
		go func() { left <- n.Leave(ctx) }()
		time.Sleep(time.Hour)
		break
	}
	return <-left
}

// TestLeaveOfSlowLoop: a rank calls Leave while its loop works for longer than DeadlockTimeout between calls of Reconfigure, and leaves
// without an error. The goroutine that calls Reconfigure may also range over Epochs only after it has returned true.
func TestLeaveOfSlowLoop(t *testing.T) {
	const step = 45 * time.Second
	for name, pause := range map[string]time.Duration{"a loop over Epochs": 3 * step, "Reconfigure alone": step} {
		loop := func(ctx context.Context, n *nexar.Node) error {
			for {
				time.Sleep(pause)
				changed, err := n.Reconfigure(ctx)
				if err != nil {
					return err
				}
				if changed {
					return nextEpoch(ctx, n)
				}
			}
		}
		inLoop := func(ctx context.Context, n *nexar.Node) error {
			for c, err := range n.Epochs(ctx) {
				if err != nil || c.Size() < 3 {
					return err
				}
				for changed := false; !changed; {
					time.Sleep(pause)
					if changed, err = n.Reconfigure(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		}
		if name == "a loop over Epochs" {
			loop = inLoop
		}
		errs := inWorld(t, func(ctx context.Context, _ func(), nodes []*nexar.Node) {
			time.Sleep(time.Second)
			if err := nodes[1].Leave(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}, loop, loop, loop)
		for rank, err := range errs {
			if err != nil {
				t.Errorf("%s: rank %d: %v", name, rank, err)
			}
		}
	}
}

// TestLeaveInDeadlock: ranks that receive from each other are in a deadlock, also while one of them is in Leave on another goroutine.
func TestLeaveInDeadlock(t *testing.T) {
	receive := func(from int) func(ctx context.Context, n *nexar.Node) error {
		return func(ctx context.Context, n *nexar.Node) error {
			began := time.Now()
			defer func() {
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("the receive from rank %d took %v, want little more than DeadlockTimeout, a minute", from, took)
				}
			}()
			for c, err := range n.Epochs(ctx) {
				if err == nil {
					_, err = nexar.Recv(ctx, c, make([]int, 1), from, 1)
				}
				return err
			}
			return nil
		}
	}
	idle := func(context.Context, *nexar.Node) error { return nil }
	errs := inWorld(t, func(ctx context.Context, _ func(), nodes []*nexar.Node) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		_ = nodes[1].Leave(ctx)
	}, receive(1), receive(0), idle)
	for rank, err := range errs[:2] {
		d, ok := errors.AsType[*nexar.DeadlockError](err)
		if !ok || len(d.Waits) != 2 || d.Waits[0].Op != "recv" || d.Waits[1].Op != "recv" {
			t.Errorf("rank %d: %v, want a deadlock of two receives", rank, err)
		}
	}
}

// TestLeaveInNextEpoch: another rank fails while a rank is in Leave. The trace shows the call in the next epoch, too.
func TestLeaveInNextEpoch(t *testing.T) {
	const pause = 10 * time.Second
	loop := func(ctx context.Context, n *nexar.Node) error {
		for c, err := range n.Epochs(ctx) {
			switch {
			case err != nil || c.Size() < 2:
				return err
			case c.Size() == 3:
				_ = c.Barrier(ctx) // which rank 2 does not enter
				continue
			}
			time.Sleep(pause)
			if _, err := n.Reconfigure(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	fail := func(_ context.Context, n *nexar.Node) error {
		time.Sleep(pause)
		return n.Close()
	}
	errs := inWorld(t, func(ctx context.Context, _ func(), nodes []*nexar.Node) {
		time.AfterFunc(3*pause/2, func() {
			if got, size := running(nodes[1]), nodes[1].World().Size(); size != 2 || !slices.Equal(got, []string{"leave"}) {
				t.Errorf("the trace in the world of %d ranks has the calls %q, want leave among 2", size, got)
			}
		})
		if err := nodes[1].Leave(ctx); err != nil {
			t.Error(err)
		}
	}, loop, loop, fail)
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
