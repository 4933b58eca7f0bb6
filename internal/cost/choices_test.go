package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// A lister is a Tuner of either kind.
type lister interface {
	Choose(n Need) Choice
	Choices(n Need) []Choice
	ChoiceWith(n Need, index, channels int) (c Choice, ok bool)
}

// listers returns Tuners of all kinds for the given number of ranks.
func listers(size int) map[string]lister {
	return map[string]lister{
		"memory": New(Local()), "network": New(TCP(true)), "shared memory": NewShared(Host(64<<10, 0), plan.Hosts{}),
		"hosts": NewOnHosts(Pipes(), TCP(false), alike(true, 2, size/2)),
	}
}

// TestChoicesBeginWithTheBest: Choices returns the result of Choose first, then every other suitable
// algorithm once, the fastest first.
func TestChoicesBeginWithTheBest(t *testing.T) {
	for _, size := range []int{4, 6, 16} {
		for name, tuner := range listers(size) {
			for _, n := range needs(size) {
				choices, chosen := tuner.Choices(n), tuner.Choose(n)
				if len(choices) == 0 || choices[0].Index != chosen.Index || choices[0].Channels != chosen.Channels {
					t.Fatalf("%s: %+v: the first of %d is %+v, Choose returns %+v", name, n, len(choices), choices[:1], chosen)
				}
				if !slices.IsSortedFunc(choices[1:], func(a, b Choice) int { return int(math.Copysign(1, a.Seconds-b.Seconds)) }) {
					t.Errorf("%s: %+v: not the cheapest first", name, n)
				}
				indices := make(map[int]bool)
				for _, w := range choices {
					indices[w.Index] = true
					if !w.Algorithm.Fits(size) || n.Ordered && !w.Algorithm.Ordered || w.Algorithm.Shared && name != "shared memory" {
						t.Errorf("%s: %+v: %s does not fit", name, n, w.Algorithm.Name)
					}
				}
				if len(indices) != len(choices) {
					t.Errorf("%s: %+v: %d algorithms in %d choices", name, n, len(indices), len(choices))
				}
			}
		}
	}
}

// TestChoicesAreComplete: choices over links exclude algorithms that need shared memory, support fewer
// ranks or do not keep the order; choices in shared memory exclude those that cannot be cut.
func TestChoicesAreComplete(t *testing.T) {
	for _, test := range []struct {
		tuner string
		need  Need
		want  []string
	}{
		{"network", Need{Collective: plan.AllReduce, Size: 4, Bytes: 1 << 20},
			[]string{"circulant", "direct", "flat", "ordered", "rabenseifner", "recursive-doubling", "recursive-multiplying", "ring", "swing-1d", "swing-2d", "swing-short-2d"}},
		{"network", Need{Collective: plan.AllReduce, Size: 16, Bytes: 1 << 20, Ordered: true},
			[]string{"ordered", "rabenseifner", "recursive-doubling", "recursive-multiplying"}},
		{"shared memory", Need{Collective: plan.Broadcast, Size: 6, Bytes: 8}, []string{"binomial", "chain", "flat", "scatter-ring"}},
		{"shared memory", Need{Collective: plan.AllToAll, Size: 4, Bytes: 1 << 20, Blocks: true}, []string{"pairwise"}},
		{"hosts", Need{Collective: plan.Barrier, Size: 4}, []string{"dissemination", "hosts-leader", "recursive-doubling", "ring", "two-phase"}},
	} {
		var got []string
		for _, w := range listers(test.need.Size)[test.tuner].Choices(test.need) {
			got = append(got, w.Algorithm.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v: got %v, want %v", test.tuner, test.need, got, test.want)
		}
	}
}

// TestChoicesAreForTheLength: the predicted time grows within a class of lengths with the same
// choice.
func TestChoicesAreForTheLength(t *testing.T) {
	const size = 4
	for name, tuner := range listers(size) {
		n := Need{Collective: plan.AllReduce, Size: size, Bytes: 4 << 20}
		low := tuner.Choices(n)[0]
		n.Bytes = 8<<20 - 1
		high, chosen := tuner.Choices(n)[0], tuner.Choose(n)
		if low.Index != high.Index || !(low.Seconds < chosen.Seconds && chosen.Seconds < high.Seconds) {
			t.Errorf("%s: %s takes %v and %s %v, in a class with %v", name,
				low.Algorithm.Name, low.Seconds, high.Algorithm.Name, high.Seconds, chosen.Seconds)
		}
	}
}

// TestChoiceWithChannels: ChoiceWith uses the given number of channels where several are
// possible.
func TestChoiceWithChannels(t *testing.T) {
	ring := slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(a plan.Algorithm) bool { return a.Name == "ring" })
	bruck := slices.IndexFunc(plan.Algorithms(plan.AllToAll), func(a plan.Algorithm) bool { return a.Name == "bruck" })
	reduce := Need{Collective: plan.AllReduce, Size: 4, Bytes: 1 << 20}
	exchange := Need{Collective: plan.AllToAll, Size: 4, Bytes: 1 << 20, Blocks: true}
	for name, tuner := range listers(4) {
		one, okOne := tuner.ChoiceWith(reduce, ring, 1)
		many, okMany := tuner.ChoiceWith(reduce, ring, 64)
		if !okOne || !okMany || one.Channels != 1 {
			t.Fatalf("%s: a ring on one channel is %+v", name, one)
		}
		if name == "shared memory" {
			if many.Channels != 1 || many.Seconds != one.Seconds {
				t.Errorf("%s: a ring on 64 channels is %+v", name, many)
			}
			continue
		}
		if many.Channels != 64 || many.Seconds == one.Seconds {
			t.Errorf("%s: a ring on 64 channels is %+v, on one %+v", name, many, one)
		}
		if got, ok := tuner.ChoiceWith(exchange, bruck, 8); !ok || got.Channels != 1 {
			t.Errorf("%s: blocks that cannot be cut are on %d channels", name, got.Channels)
		}
	}
	reduce.Ordered = true
	if got, ok := New(Local()).ChoiceWith(reduce, ring, 0); ok {
		t.Errorf("ordered operands are combined by %s", got.Algorithm.Name)
	}
}

// TestMiddle: all lengths between two powers of two have the same middle, including the largest
// ones.
func TestMiddle(t *testing.T) {
	for bytes, want := range map[int]int{
		0: 0, 1: 1, 2: 3, 3: 3, 4: 6, 7: 6, 1 << 20: 3 << 19, 1<<21 - 1: 3 << 19, math.MaxInt: math.MaxInt/4*3 + 3,
	} {
		if got := middle(bytes); got != want {
			t.Errorf("middle of the class of %d: got %d, want %d", bytes, got, want)
		}
	}
}
