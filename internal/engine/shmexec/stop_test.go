package shmexec

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestFailureIsNotPosted: for every plan, a rank that could not combine data posts none of them: each
// other rank has the right result or an error.
func TestFailureIsNotPosted(t *testing.T) {
	for _, c := range plan.Collectives() {
		if !c.Reduces() {
			continue
		}
		for _, n := range []int{2, 3, 4} {
			for _, a := range single(c, n) {
				for culprit := range n {
					failure{trial{c, a, n, 0, 1, 40, 0}, culprit}.run(t)
				}
			}
		}
	}
}

// TestStopped: a rank with a failed operation posts nothing and returns errStopped, also if it
// waits for no rank.
func TestStopped(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	r := newShort(memories[0], NewSchedule(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(2, 0)).Compile(0), 1)
	r.stopped.Store(true)
	err := memories[0].run(t.Context(), r)
	if count := word(memories[0].cfg.Areas[0], memories[0].cell(0)+countAt).Load(); err != errStopped || count != 0 {
		t.Errorf("got %v and %d posts, want %v and none", err, count, errStopped)
	}
}

// A failure is a trial with a reduction that fails on one rank.
type failure struct {
	trial
	culprit int
}

func (f failure) run(t *testing.T) {
	memories, _ := newMemories(f.n, 64<<10)
	plans := f.a.Plans(f.n, f.root)
	executions := make([]*Execution, f.n)
	for rank, m := range memories {
		executions[rank] = f.execution(m, NewSchedule(plans).Compile(rank), rank)
	}
	culprit := executions[f.culprit]
	culprit.reduce = func(dst, a, _ []byte) {
		copy(dst, a)
		culprit.stopped.Store(true)
	}
	var ranks sync.WaitGroup
	for rank, r := range executions {
		ranks.Go(func() {
			err := memories[rank].run(t.Context(), r)
			switch {
			case rank == f.culprit && culprit.stopped.Load():
				for _, other := range executions { // They learn of it much later.
					other.stopped.Store(true)
				}
			case err == nil:
				f.check(t, r, rank)
			}
			if err != nil && err != errStopped {
				t.Error(fmt.Errorf("%v %s, %d ranks: rank %d: %w", f.c, f.a.Name, f.n, rank, err))
			}
		})
	}
	ranks.Wait()
}

// TestClose: close releases the areas once. Progress and finished pieces stay readable.
func TestClose(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	released := 0
	memories[0].cfg.Release = func() { released++ }
	a := plan.Algorithm{Plan: plan.FlatBroadcast}
	var ranks sync.WaitGroup
	for rank, b := range memories {
		ranks.Go(func() {
			if err := b.run(t.Context(), newShort(b, NewSchedule(a.Plans(2, 0)).Compile(rank), 1)); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
	m := memories[0]
	progress := m.progress()
	shared := m.cfg.Areas
	m.close()
	m.close()
	for _, area := range shared {
		clear(area)
	}
	if m.progress() != progress || progress == 0 || m.remaining(1) != 0 || m.remaining(2) != 1 || !m.hasFinished(1, 1) || m.waiting() != -1 {
		t.Errorf("progress %d, was %d; %d and %d left", m.progress(), progress, m.remaining(1), m.remaining(2))
	}
	m.interrupt()
	if released != 1 {
		t.Errorf("released %d times, want once", released)
	}
}

// TestNoMemory: a rank without memory for payloads posts nothing, and returns a MemoryError.
func TestNoMemory(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	cause := errors.New("no pages")
	memories[0].cfg.Reserve = func() error { return cause }
	err := memories[0].run(t.Context(), newShort(memories[0], NewSchedule(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(2, 0)).Compile(0), 100))
	_, isMemory := errors.AsType[*MemoryError](err)
	if count := word(memories[0].cfg.Areas[0], memories[0].cell(0)+countAt).Load(); !isMemory || !errors.Is(err, cause) || count != 0 {
		t.Errorf("got %v and %d posts, want a *MemoryError because of %v, and none", err, count, cause)
	}
}
