package selector

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// index returns the number of an algorithm in fingerprints.
func index(t *testing.T, k plan.Collective, name string) int {
	t.Helper()
	i := slices.IndexFunc(plan.Algorithms(k), func(a plan.Algorithm) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("unknown algorithm %s for %v", name, k)
	}
	return i
}

// sharedBit marks the executor in shared memory in the number of a plan.
const sharedBit = 0x80

// pin sets the pins of a Selector.
func pin(t *testing.T, s *Selector, list ...string) {
	t.Helper()
	pins, err := ParsePins(list)
	if err != nil {
		t.Fatal(err)
	}
	s.Pin(pins)
}

// TestPinsOverLinks: a pin fixes the number of channels, or leaves it to the model. It does not
// apply where its algorithm does not support the call.
func TestPinsOverLinks(t *testing.T) {
	ring := index(t, plan.AllReduce, "ring")
	s := newSelector(t, 4)
	pin(t, s, "all_reduce=ring/4", "scatter=direct")
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != ring || w.Channels != 4 {
		t.Errorf("pinned: plan %d on %d channels", w.Call.Plan, w.Channels)
	}
	ordered := sum(1000)
	ordered.Ordered = true
	if w := s.Schedule(new(ordered)); int(w.Call.Plan) == ring {
		t.Error("an ordered reduction runs along a ring")
	}
	pin(t, s, "all_reduce=circulant")
	circulant := index(t, plan.AllReduce, "circulant")
	best, ok := cost.New(cost.Local()).ChoiceWith(cost.Need{Collective: plan.AllReduce, Size: 4, Bytes: 16 << 20}, circulant, 0)
	if w := s.Schedule(new(sum(4 << 20))); !ok || best.Channels == 1 || int(w.Call.Plan) != circulant || w.Channels != best.Channels {
		t.Errorf("pinned without channels: plan %d on %d channels, want %d", w.Call.Plan, w.Channels, best.Channels)
	}
	pin(t, s, "all_reduce=staged")
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) == index(t, plan.AllReduce, "staged") {
		t.Error("an algorithm for shared memory runs over links")
	}
	pin(t, s)
	if got, want := s.Schedule(new(sum(1000))).Call, newSelector(t, 4).Schedule(new(sum(1000))).Call; got != want {
		t.Errorf("without pins: %+v, want %+v", got, want)
	}
}

// TestPinsInSharedMemory: a pin without channels runs in shared memory if it can, one with channels
// runs over links.
func TestPinsInSharedMemory(t *testing.T) {
	ring := index(t, plan.AllReduce, "ring")
	s := newSelector(t, 4)
	s.UseSharedMemory(newMemory(4), plan.Groups(4))
	pin(t, s, "all_reduce=ring")
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != ring|sharedBit || w.Executor != exec.Shared {
		t.Errorf("a ring: plan %d", w.Call.Plan)
	}
	if w := s.Schedule(new(sum(2 << 30))); int(w.Call.Plan) != ring || w.Executor != exec.Links {
		t.Errorf("a ring of a vector that is too long for shared memory: plan %d", w.Call.Plan)
	}
	pin(t, s, "all_reduce=ring/1")
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != ring || w.Executor != exec.Links || w.Channels != 1 {
		t.Errorf("a ring on one channel: plan %d on %d channels", w.Call.Plan, w.Channels)
	}
	pin(t, s, "gather=binomial")
	binomial := index(t, plan.Gather, "binomial")
	for count, want := range map[int]int{10: binomial | sharedBit, 1 << 20: binomial} {
		if w := s.Schedule(new(Shape{Kind: plan.Gather, Elem: 4, Count: count, Blocks: true})); int(w.Call.Plan) != want {
			t.Errorf("a tree with messages that cannot be cut, %d elements: plan %d, want %d", count, w.Call.Plan, want)
		}
	}
}

// TestPinsOnHosts: a hierarchical algorithm can be pinned everywhere, and applies where the
// hosts are known.
func TestPinsOnHosts(t *testing.T) {
	pins, err := ParsePins([]string{"all_reduce=hosts-circulant/2"})
	if err != nil {
		t.Fatal(err)
	}
	h := plan.HostsOf([]string{"a", "b", "a", "b"})
	circulant := slices.IndexFunc(plan.AlgorithmsOn(plan.AllReduce, h), func(a plan.Algorithm) bool { return a.Name == "hosts-circulant" })
	s := newSelector(t, 4)
	s.Pin(pins)
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) == circulant {
		t.Error("a hierarchical algorithm runs although no host is known")
	}
	s.UseHosts(h)
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != circulant || w.Channels != 2 {
		t.Errorf("pinned: plan %d on %d channels", w.Call.Plan, w.Channels)
	}
	ordered := sum(1000)
	ordered.Ordered = true // The ranks of a host are not consecutive.
	if w := s.Schedule(new(ordered)); int(w.Call.Plan) >= len(plan.Algorithms(plan.AllReduce)) {
		t.Errorf("an ordered reduction runs by %s", PlanName(plan.AllReduce, int(w.Call.Plan), 1))
	}
	if got, want := PlanName(plan.AllReduce, circulant, 2), "hosts-circulant on several channels"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMalformedPins(t *testing.T) {
	for bad, want := range map[string]string{
		"ring":                  "collective=algorithm",
		"sum=ring":              "want one of barrier, broadcast",
		"all_reduce=fast":       "want one of recursive-doubling, flat",
		"all_reduce=ring/0":     "from 1 to 64",
		"all_reduce=staged/2":   "staged runs in shared memory",
		"scan=flat scan=flat":   "two algorithms for scan",
		"broadcast=chain/a lot": "from 1 to 64",
	} {
		list := []string{bad}
		if strings.HasPrefix(bad, "scan") {
			list = strings.Fields(bad)
		}
		if _, err := ParsePins(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

// TestPinsChangeConcurrently: a schedule that is requested during a change has the old or the
// new pins, and later ones have the new pins.
func TestPinsChangeConcurrently(t *testing.T) {
	s := newSelector(t, 4)
	s.UseSharedMemory(newMemory(4), plan.Groups(4))
	ring, direct := index(t, plan.AllReduce, "ring"), index(t, plan.AllReduce, "direct")
	pin(t, s, "all_reduce=ring")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 200 {
				if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != ring|sharedBit && int(w.Call.Plan) != direct {
					t.Errorf("plan %d", w.Call.Plan)
				}
			}
		})
	}
	for i := range 200 {
		want := ring | sharedBit
		if i%2 == 0 {
			want = direct
			pin(t, s, "all_reduce=direct/2")
		} else {
			pin(t, s, "all_reduce=ring")
		}
		if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != want {
			t.Errorf("after the change: plan %d, want %d", w.Call.Plan, want)
		}
	}
	all.Wait()
}
