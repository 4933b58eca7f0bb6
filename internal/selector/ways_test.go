package selector

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
)

// taskFor is a call of so many bytes, as users make it.
func taskFor(k plan.Collective, bytes, size int) Task {
	switch k {
	case plan.Barrier:
		return Task{Kind: k, Elem: 1}
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		return Task{Kind: k, Type: 9, Elem: 4, Count: bytes / 4 / size, Blocks: true}
	}
	return Task{Kind: k, Type: 9, Elem: 4, Count: bytes / 4, Ordered: k == plan.Scan || k == plan.ExclusiveScan}
}

// nameOf is a way as a pin has it.
func nameOf(w cost.Choice) string {
	if w.Shared {
		return w.Algorithm.Name
	}
	return fmt.Sprintf("%s/%d", w.Algorithm.Name, w.Channels)
}

// TestWaysBeginWithWhatIsDone: of all collectives and lengths, with and without a
// board and pins, the first way is that of the Work of such a call, and every
// way that is listed can be pinned.
func TestWaysBeginWithWhatIsDone(t *testing.T) {
	const size = 4
	for _, onBoard := range []bool{false, true} {
		b := newSelector(t, size)
		if onBoard {
			b.UseBoard(newBoard(size))
		}
		for _, k := range plan.Collectives() {
			for bytes := 64; bytes <= 16<<20; bytes *= 16 {
				pin(t, b)
				task := taskFor(k, bytes, size)
				for i, way := range b.Ways(k, bytes, false) {
					if i == 0 {
						compare(t, b.Recipe(new(task)).Call.Plan, way)
					}
					text := k.String() + "=" + nameOf(way)
					pin(t, b, text)
					compare(t, b.Recipe(new(task)).Call.Plan, way)
					again := b.Ways(k, bytes, false)[0]
					if again.Index != way.Index || again.Shared != way.Shared || again.Channels != way.Channels || way.Seconds != again.Seconds {
						t.Errorf("%s of %d bytes: pinned is %+v, listed was %+v", text, bytes, again, way)
					}
					pin(t, b)
				}
			}
		}
	}
}

func compare(t *testing.T, number uint8, way cost.Choice) {
	t.Helper()
	want := way.Index
	if way.Shared {
		want |= sharedPlan
	}
	if int(number) != want {
		t.Errorf("%s: Work has plan %d, want %d", nameOf(way), number, want)
	}
}

// TestWaysAreInOrder: behind the first the cheapest come first, on the board and
// over links, and none comes twice.
func TestWaysAreInOrder(t *testing.T) {
	b := newSelector(t, 4)
	links := len(b.Ways(plan.AllReduce, 1<<20, false))
	b.UseBoard(newBoard(4))
	for _, pinned := range [][]string{nil, {"all_reduce=ring/64"}, {"all_reduce=direct"}} {
		pin(t, b, pinned...)
		ways := b.Ways(plan.AllReduce, 1<<20, false)
		var names []string
		shared := 0
		for i, w := range ways {
			names = append(names, nameOf(w))
			if w.Shared {
				shared++
			}
			if i > 1 && w.Seconds < ways[i-1].Seconds || w.Seconds <= 0 {
				t.Errorf("%v: %s takes %v s", pinned, nameOf(w), w.Seconds)
			}
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(ways) || len(ways)-shared != links || shared < 4 {
			t.Errorf("%v: %v, of which %d are on the board", pinned, names, shared)
		}
	}
}

// TestWaysOfWhatIsTooLong: no way of a vector that is too long for the board is
// on it.
func TestWaysOfWhatIsTooLong(t *testing.T) {
	b := newSelector(t, 2)
	b.UseBoard(newBoard(2))
	for _, w := range b.Ways(plan.AllReduce, 1<<40, false) {
		if w.Shared {
			t.Errorf("%s is on the board", nameOf(w))
		}
	}
}
