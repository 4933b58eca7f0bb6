package shmexec

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// detach removes all areas but those of a rank and its neighbors, which the rank attaches on demand. It returns the ranks
// that have been attached.
func detach(memories []*Memory) (attached [][]int) {
	n := len(memories)
	attached = make([][]int, n)
	for rank, m := range memories {
		cfg := m.cfg
		all := cfg.Areas
		cfg.Areas = make([][]byte, n)
		for _, r := range append(Neighbors(rank, n), rank) {
			cfg.Areas[r] = all[r]
		}
		cfg.Attach = func(r int) ([]byte, error) {
			attached[rank] = append(attached[rank], r)
			return all[r], nil
		}
		memories[rank] = New(cfg)
	}
	return attached
}

// TestAttach: a rank attaches the areas that its plan needs, once, and no other.
func TestAttach(t *testing.T) {
	const n = 20
	for _, name := range []string{"leader", "groups", "groups-shares"} {
		memories, _ := newMemories(n, 32<<10)
		attached := detach(memories)
		i := slices.IndexFunc(plan.AlgorithmsOn(plan.AllReduce, plan.Groups(n)), func(a plan.Algorithm) bool { return a.Name == name })
		a := plan.AlgorithmsOn(plan.AllReduce, plan.Groups(n))[i]
		for call := range 3 {
			trial{plan.AllReduce, a, n, 0, 2, 5, 0}.run(t, memories, uint32(call))
		}
		plans, sum := a.Plans(n, 0), 0
		for rank, got := range attached {
			want := NewSchedule(plans).Compile(rank).needs
			want = slices.DeleteFunc(want, func(r int) bool { return slices.Contains(Neighbors(rank, n), r) })
			if !slices.Equal(got, want) {
				t.Errorf("%s: rank %d has attached %v, want %v", name, rank, got, want)
			}
			sum += len(got)
		}
		if sum == 0 || sum > n*n/2 {
			t.Errorf("%s: %d areas are attached by %d ranks", name, sum, n)
		}
	}
}

// broadcast returns the execution of a broadcast from rank 0 among n ranks.
func broadcast(m *Memory, n int) *Execution {
	return newShort(m, NewSchedule(plan.Algorithm{Plan: plan.FlatBroadcast}.Plans(n, 0)).Compile(m.cfg.Rank), 1)
}

// TestAttachError: an area that cannot be attached for some time fails the operation, which has posted nothing. An
// operation that fails meanwhile ends at once.
func TestAttachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rank = 6, 3
		memories, _ := newMemories(n, 1<<10)
		detach(memories)
		m, cause := memories[rank], errors.New("too many files")
		tries := 0
		m.cfg.Attach = func(int) ([]byte, error) { tries++; return nil, cause }
		began := time.Now()
		err := m.run(t.Context(), broadcast(m, n))
		a, ok := errors.AsType[*AttachError](err)
		if !ok || a.Rank != 0 || !errors.Is(err, cause) || tries < 2 {
			t.Errorf("got %v after %d tries, want an AttachError of rank 0", err, tries)
		}
		if took := time.Since(began); took < attachTime || took > attachTime+time.Second {
			t.Errorf("it took %v, want %v", took, attachTime)
		}
		if count := word(m.cfg.Areas[rank], m.cell(0)+countAt).Load(); count != 0 {
			t.Errorf("%d posts", count)
		}
		r := broadcast(m, n)
		began = time.Now()
		time.AfterFunc(attachTime/2, func() { r.stopped.Store(true) })
		if err := m.run(t.Context(), r); err != errStopped || time.Since(began) >= attachTime {
			t.Errorf("got %v after %v, want %v", err, time.Since(began), errStopped)
		}
	})
}

// TestAttachNeeds: before an area is attached, an operation needs its rank only if its plan does.
func TestAttachNeeds(t *testing.T) {
	const n, rank = 8, 4
	memories, _ := newMemories(n, 1<<10)
	detach(memories)
	m := memories[rank]
	r := broadcast(m, n)
	for other, want := range map[int]bool{0: true, 1: false, 2: false, rank - 1: true, rank + 1: true, 6: false, 7: false} {
		if got := r.NeedsLocked(other); got != want {
			t.Errorf("rank %d is needed: %v, want %v", other, got, want)
		}
	}
}
