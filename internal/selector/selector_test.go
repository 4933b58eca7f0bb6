package selector

import (
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

func newSelector(t testing.TB, size int) *Selector {
	t.Helper()
	pool, err := bufpool.New(bufpool.Inference())
	if err != nil {
		t.Fatal(err)
	}
	return New(0, size, pool, cost.New(cost.Local()))
}

// newMemory returns the shared memory of ranks in separate processes.
func newMemory(size int) *shmexec.Memory { return memoryOf(size, false) }

func memoryOf(size int, sameProcess bool) *shmexec.Memory {
	areas := make([][]byte, size)
	for i := range areas {
		areas[i] = make([]byte, shmexec.AreaSize(64<<10))
	}
	return shmexec.New(shmexec.Config{Areas: areas, SameProcess: sameProcess})
}

func sum(count int) Shape {
	return Shape{Kind: plan.AllReduce, Type: 9, Op: 1, Elem: 4, Count: count}
}

// TestScheduleFitsTheCall: the fingerprint has the call and the choice, and a vector is cut
// into pieces that fit the shared memory.
func TestScheduleFitsTheCall(t *testing.T) {
	s := newSelector(t, 4)
	w := s.Schedule(new(sum(1000)))
	if w.Executor != exec.Links || w.Call.Count != 1000 || w.Call.Kind != uint8(plan.AllReduce) || int(w.Call.Channels) != w.Channels {
		t.Errorf("over links: %+v", w)
	}
	s.UseSharedMemory(newMemory(4), plan.Groups(4))
	for _, count := range []int{1, 1000, 10 << 20} {
		w := s.Schedule(new(sum(count)))
		if w.Executor != exec.Shared || w.Call.Plan&sharedBit == 0 || int(w.Call.Channels) != w.Channels {
			t.Errorf("in shared memory: %+v", w)
		}
		if pieces := w.Plan.(*shmexec.Program).Pieces(w.Layout, 64<<10); pieces != w.Channels {
			t.Errorf("%d elements in %d pieces, want %d", count, w.Channels, pieces)
		}
		if again := s.Schedule(new(sum(count))); again.Plan != w.Plan || again.Call != w.Call {
			t.Errorf("the same shape again: %+v", again)
		}
	}
	if w := s.Schedule(new(sum(2 << 30))); w.Executor != exec.Links {
		t.Errorf("a vector that is too long for shared memory has %d pieces", w.Channels)
	}
}

// TestSameProcess: long vectors of ranks of one process go over links where this is cheaper by
// the model, unless a pin says otherwise.
func TestSameProcess(t *testing.T) {
	s := newSelector(t, 4)
	s.UseSharedMemory(memoryOf(4, true), plan.Groups(4))
	shape := func(bytes int) *Shape { return &Shape{Kind: plan.AllToAll, Elem: 4, Count: bytes / 16, Blocks: true} }
	isShared := func(bytes int) bool { return s.Schedule(shape(bytes)).Executor == exec.Shared }
	for bytes, want := range map[int]bool{8: true, sharedLinksFrom / 2: true, 16 << 20: false} {
		if got := isShared(bytes); got != want {
			t.Errorf("%d bytes in shared memory: %t, want %t", bytes, got, want)
		}
		choices := s.Choices(plan.AllToAll, bytes, false)
		for _, w := range choices[1:] {
			if w.Seconds < choices[0].Seconds && bytes >= sharedLinksFrom {
				t.Errorf("%d bytes: %s takes %v s, %s would take %v s", bytes, nameOf(choices[0]), choices[0].Seconds, nameOf(w), w.Seconds)
			}
		}
	}
	pin(t, s, "all_to_all=pairwise")
	if !isShared(16 << 20) {
		t.Error("a collective that is pinned in shared memory runs over links")
	}
}

func TestPlanName(t *testing.T) {
	for name, got := range map[string]string{
		"ring":                     PlanName(plan.AllReduce, 6, 1),
		"ring on several channels": PlanName(plan.AllReduce, 6, 2),
		"ring in shared memory":    PlanName(plan.AllReduce, 6|sharedBit, 99),
		"ring by executor 2":       PlanName(plan.AllReduce, 6|0x40, 1),
		"algorithm 63":             PlanName(plan.AllReduce, 63, 1),
		"algorithm 191":            PlanName(plan.AllReduce, 63|sharedBit, 1),
	} {
		if got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}

// TestThirdExecutor: a Selector chooses an additional executor by its ID, plans and costs. The
// fingerprint distinguishes the executors.
func TestThirdExecutor(t *testing.T) {
	const id = exec.ID(2)
	s := newSelector(t, 4)
	var compiled []string
	s.UseExecutor(&Executor{
		ID: id, Tuner: cost.New(cost.Local()), LinksFrom: math.MaxInt, BriefBytes: 100,
		Compile: func(a plan.Algorithm, root int, inPlace bool) any {
			compiled = append(compiled, a.Name)
			return a.Name
		},
		Channels: func(_ any, l exec.Layout, _ int) int { return l.Count * l.Elem },
	})
	pin(t, s, "all_reduce=ring")
	ring := index(t, plan.AllReduce, "ring")
	r := s.Schedule(new(sum(20)))
	if r.Executor != id || r.Plan != "ring" || r.Channels != 80 || !r.Brief || int(r.Call.Plan) != ring|0x40 {
		t.Errorf("executor %d, plan %v of %d channels, brief %v, number %#x in the fingerprint", r.Executor, r.Plan, r.Channels, r.Brief, r.Call.Plan)
	}
	if again := s.Schedule(new(sum(25))); again.Plan != "ring" || again.Brief || len(compiled) != 1 {
		t.Errorf("a longer vector: %+v, compiled %q", again, compiled)
	}
	if r := s.Schedule(new(sum(1 << 20))); r.Executor != exec.Links || int(r.Call.Plan) != ring {
		t.Errorf("a vector in too many parts: executor %d, plan %#x", r.Executor, r.Call.Plan)
	}
	if choices := s.Choices(plan.AllReduce, 8, false); choices[0].Executor != id || choices[0].Index != ring {
		t.Errorf("the first choice is %+v", choices[0])
	}
}

// TestPlanNumbers: the numbers of all plans leave room for the executor.
func TestPlanNumbers(t *testing.T) {
	for _, k := range plan.Collectives() {
		if n := len(plan.AlgorithmsOn(k, plan.Hosts{})); n > executorBits^0xFF {
			t.Errorf("%v has %d algorithms, want at most %d", k, n, executorBits^0xFF)
		}
	}
}
