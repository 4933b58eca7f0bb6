package selector

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// shapeFor returns the Shape of a call of the given length in bytes.
func shapeFor(k plan.Collective, bytes, size int) Shape {
	switch k {
	case plan.Barrier:
		return Shape{Kind: k, Elem: 1}
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		return Shape{Kind: k, Type: 9, Elem: 4, Count: bytes / 4 / size, Blocks: true}
	}
	return Shape{Kind: k, Type: 9, Elem: 4, Count: bytes / 4, Ordered: k == plan.Scan || k == plan.ExclusiveScan}
}

// nameOf returns the pin of a choice.
func nameOf(w Choice) string {
	if w.Executor == exec.Shared {
		return w.Algorithm.Name
	}
	return fmt.Sprintf("%s/%d", w.Algorithm.Name, w.Channels)
}

// TestChoicesBeginWithTheBest: for all collectives and lengths, with and without shared memory
// and pins, the first choice is that of the schedule of such a call, and every listed choice
// can be pinned.
func TestChoicesBeginWithTheBest(t *testing.T) {
	const size = 4
	for _, inSharedMemory := range []bool{false, true} {
		s := newSelector(t, size)
		if inSharedMemory {
			s.UseSharedMemory(newMemory(size), plan.Groups(size))
		}
		for _, k := range plan.Collectives() {
			for bytes := 64; bytes <= 16<<20; bytes *= 16 {
				pin(t, s)
				shape := shapeFor(k, bytes, size)
				for i, choice := range s.Choices(k, bytes, false) {
					if i == 0 {
						compare(t, s.Schedule(new(shape)).Call.Plan, choice)
					}
					text := k.String() + "=" + nameOf(choice)
					pin(t, s, text)
					compare(t, s.Schedule(new(shape)).Call.Plan, choice)
					again := s.Choices(k, bytes, false)[0]
					if again.Index != choice.Index || again.Executor != choice.Executor || again.Channels != choice.Channels || choice.Seconds != again.Seconds {
						t.Errorf("%s of %d bytes: pinned %+v, listed %+v", text, bytes, again, choice)
					}
					pin(t, s)
				}
			}
		}
	}
}

// compare checks the number of a plan in a fingerprint.
func compare(t *testing.T, number uint8, choice Choice) {
	t.Helper()
	want := choice.Index
	if choice.Executor == exec.Shared {
		want |= sharedBit
	}
	if int(number) != want {
		t.Errorf("%s: the fingerprint has plan %d, want %d", nameOf(choice), number, want)
	}
}

// TestChoicesAreInOrder: all choices after the first are in the order of their cost, in shared
// memory and over links, and all differ.
func TestChoicesAreInOrder(t *testing.T) {
	s := newSelector(t, 4)
	links := len(s.Choices(plan.AllReduce, 1<<20, false))
	s.UseSharedMemory(newMemory(4), plan.Groups(4))
	for _, pinned := range [][]string{nil, {"all_reduce=ring/64"}, {"all_reduce=direct"}} {
		pin(t, s, pinned...)
		choices := s.Choices(plan.AllReduce, 1<<20, false)
		var names []string
		shared := 0
		for i, w := range choices {
			names = append(names, nameOf(w))
			if w.Executor == exec.Shared {
				shared++
			}
			if i > 1 && w.Seconds < choices[i-1].Seconds || w.Seconds <= 0 {
				t.Errorf("%v: %s takes %v s", pinned, nameOf(w), w.Seconds)
			}
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(choices) || len(choices)-shared != links || shared < 4 {
			t.Errorf("%v: %v, %d in shared memory", pinned, names, shared)
		}
	}
}

// TestChoicesOfLongVectors: a vector that is too long for shared memory has no choice there.
func TestChoicesOfLongVectors(t *testing.T) {
	s := newSelector(t, 2)
	s.UseSharedMemory(newMemory(2), plan.Groups(2))
	for _, w := range s.Choices(plan.AllReduce, 1<<40, false) {
		if w.Executor == exec.Shared {
			t.Errorf("%s is in shared memory", nameOf(w))
		}
	}
}
