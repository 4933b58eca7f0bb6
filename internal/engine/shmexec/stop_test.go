package shmexec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// TestStopped: a rank whose operation has failed posts nothing and returns ErrStopped, also if it
// waits for no rank.
func TestStopped(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	var stopped atomic.Bool
	stopped.Store(true)
	err := memories[0].run(t.Context(), &work{
		program: Compile(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(2, 0), 0), buffers: newVectors(1, func(int, int) int { return 1 }),
		pieces: 1, unit: 8, elem: 8, stopped: &stopped, poll: func(context.Context) error { return nil },
	})
	if count := word(memories[0].cfg.Areas[0], memories[0].slot(0)+countAt).Load(); err != ErrStopped || count != 0 {
		t.Errorf("got %v and %d posts, want %v and none", err, count, ErrStopped)
	}
}

// A failure is a trial in which the reduction of one rank fails.
type failure struct {
	trial
	culprit int
}

func (f failure) run(t *testing.T) {
	memories, _ := newMemories(f.n, 64<<10)
	plans := f.a.Plans(f.n, f.root)
	enough := errors.New("enough")
	var failed, over atomic.Bool
	var ranks sync.WaitGroup
	for rank := range f.n {
		v := newVectors(plans[rank].Chunks, func(int, int) int { return f.max })
		for chunk := range v.chunks {
			v.fill(plan.Data, rank, chunk, 0)
			v.fill(plan.Input, rank, chunk, 0)
		}
		p := Compile(plans, rank)
		for i := p.TempLo; i < p.TempHi; i++ {
			v.bufs[plan.Temp][[2]int{i, 0}] = make([]byte, 8*f.max)
		}
		var stopped atomic.Bool
		w := &work{
			program: p, buffers: v, pieces: 1, unit: 8 * f.max, elem: 8, reduce: addWords, stopped: &stopped,
			poll: func(context.Context) error {
				if over.Load() { // the other ranks learn of it much later
					return enough
				}
				return nil
			},
		}
		if rank == f.culprit {
			w.reduce = func(dst, a, _ []byte) {
				copy(dst, a)
				stopped.Store(true)
				failed.Store(true)
			}
		}
		ranks.Go(func() {
			err := memories[rank].run(t.Context(), w)
			switch {
			case rank == f.culprit:
				over.Store(failed.Load())
			case err == nil:
				f.check(t, v, rank)
			}
			if err != nil && err != ErrStopped && err != enough {
				t.Error(fmt.Errorf("%v %s, %d ranks: rank %d: %w", f.c, f.a.Name, f.n, rank, err))
			}
		})
	}
	ranks.Wait()
}

// TestLeave: Leave releases the areas once. Progress and finished pieces stay readable.
func TestLeave(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	released := 0
	memories[0].cfg.Release = func() { released++ }
	a := plan.Algorithm{Plan: plan.FlatBroadcast}
	var ranks sync.WaitGroup
	for rank, b := range memories {
		ranks.Go(func() {
			err := b.run(t.Context(), &work{
				program: Compile(a.Plans(2, 0), rank), buffers: newVectors(1, func(int, int) int { return 1 }),
				pieces: 1, unit: 8, elem: 8, poll: func(context.Context) error { return nil },
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
	m := memories[0]
	progress := m.Progress()
	shared := m.cfg.Areas
	m.Leave()
	m.Leave()
	for _, area := range shared {
		clear(area)
	}
	if m.Progress() != progress || progress == 0 || m.Left(1) != 0 || m.Left(2) != 1 || !m.Finished(1, 1) || m.Waiting() != -1 {
		t.Errorf("progress %d, was %d; %d and %d left", m.Progress(), progress, m.Left(1), m.Left(2))
	}
	m.Interrupt()
	if released != 1 {
		t.Errorf("released %d times, want once", released)
	}
}

// TestNoMemory: a rank without memory for payloads posts nothing, and returns a MemoryError.
func TestNoMemory(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	cause := errors.New("no pages")
	memories[0].cfg.Reserve = func() error { return cause }
	err := memories[0].run(t.Context(), &work{
		program: Compile(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(2, 0), 0), buffers: newVectors(1, func(int, int) int { return 100 }),
		pieces: 1, unit: 800, elem: 8, poll: func(context.Context) error { return nil },
	})
	_, isMemory := errors.AsType[*MemoryError](err)
	if count := word(memories[0].cfg.Areas[0], memories[0].slot(0)+countAt).Load(); !isMemory || !errors.Is(err, cause) || count != 0 {
		t.Errorf("got %v and %d posts, want a *MemoryError because of %v, and none", err, count, cause)
	}
}
