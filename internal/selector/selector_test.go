package selector

import (
	"testing"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

func newSelector(t *testing.T, size int) *Selector {
	t.Helper()
	pool, err := bufpool.New(bufpool.Inference())
	if err != nil {
		t.Fatal(err)
	}
	return New(0, size, pool, cost.New(cost.Local()))
}

// newBoard is a board of processes that nobody else uses.
func newBoard(size int) *shmexec.Board { return boardOf(size, false) }

func boardOf(size int, within bool) *shmexec.Board {
	areas := make([][]byte, size)
	for i := range areas {
		areas[i] = make([]byte, shmexec.AreaSize(64<<10))
	}
	return shmexec.New(shmexec.Config{Areas: areas, SameProcess: within})
}

func sum(count int) Task {
	return Task{Kind: plan.AllReduce, Type: 9, Op: 1, Elem: 4, Count: count}
}

// TestWorkFitsTheTask: the fingerprint says what is called and how, and what is
// carried out on a board is cut so that it fits.
func TestWorkFitsTheTask(t *testing.T) {
	b := newSelector(t, 4)
	w := b.Recipe(new(sum(1000)))
	if w.Executor != exec.Links || w.Call.Count != 1000 || w.Call.Kind != uint8(plan.AllReduce) || int(w.Call.Channels) != w.Channels {
		t.Errorf("over links: %+v", w)
	}
	b.UseBoard(newBoard(4))
	for _, count := range []int{1, 1000, 10 << 20} {
		w := b.Recipe(new(sum(count)))
		if w.Executor != exec.Shared || w.Call.Plan&sharedPlan == 0 || int(w.Call.Channels) != w.Channels {
			t.Errorf("on a board: %+v", w)
		}
		if pieces := w.Plan.(*shmexec.Program).Pieces(w.Layout, 64<<10); pieces != w.Channels {
			t.Errorf("%d elements in %d pieces, want %d", count, w.Channels, pieces)
		}
		if again := b.Recipe(new(sum(count))); again.Plan != w.Plan || again.Call != w.Call {
			t.Errorf("the same task again: %+v", again)
		}
	}
	if w := b.Recipe(new(sum(2 << 30))); w.Executor != exec.Links {
		t.Errorf("a vector that is too long for a board has %d pieces", w.Channels)
	}
}

// TestWithinAProcess: long vectors of ranks of one process go over links where the model
// says that this is cheaper, and by what is pinned.
func TestWithinAProcess(t *testing.T) {
	b := newSelector(t, 4)
	b.UseBoard(boardOf(4, true))
	task := func(bytes int) *Task { return &Task{Kind: plan.AllToAll, Elem: 4, Count: bytes / 16, Blocks: true} }
	isShared := func(bytes int) bool { return b.Recipe(task(bytes)).Executor == exec.Shared }
	for bytes, want := range map[int]bool{8: true, bareMin / 2: true, 16 << 20: false} {
		if got := isShared(bytes); got != want {
			t.Errorf("%d bytes on the board: %t, want %t", bytes, got, want)
		}
		ways := b.Ways(plan.AllToAll, bytes, false)
		for _, w := range ways[1:] {
			if w.Seconds < ways[0].Seconds && bytes >= bareMin {
				t.Errorf("%d bytes: %s takes %v s, %s would take %v s", bytes, nameOf(ways[0]), ways[0].Seconds, nameOf(w), w.Seconds)
			}
		}
	}
	pin(t, b, "all_to_all=pairwise")
	if !isShared(16 << 20) {
		t.Error("what is pinned on the board goes over links")
	}
}

func TestPlanName(t *testing.T) {
	for name, got := range map[string]string{
		"ring":                     PlanName(plan.AllReduce, 6, 1),
		"ring on several channels": PlanName(plan.AllReduce, 6, 2),
		"ring in shared memory":    PlanName(plan.AllReduce, 6|sharedPlan, 99),
		"algorithm 77":             PlanName(plan.AllReduce, 77, 1),
		"algorithm 205":            PlanName(plan.AllReduce, 77|sharedPlan, 1),
	} {
		if got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}
