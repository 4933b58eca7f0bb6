package cost

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// forEach calls f for every algorithm of every collective that fits size.
func forEach(size int, f func(c plan.Collective, i int, a plan.Algorithm)) {
	for _, c := range plan.Collectives() {
		for i, a := range plan.Algorithms(c) {
			if a.Fits(size) {
				f(c, i, a)
			}
		}
	}
}

// TestDepthBeyond compares the estimated depth for many ranks with the depth of their plans.
func TestDepthBeyond(t *testing.T) {
	for _, size := range []int{65, 100, 128, 150} {
		forEach(size, func(c plan.Collective, _ int, a plan.Algorithm) {
			want := depth(a, a.Plans(size, 0))
			got := measure(c, a, size).depth
			// Algorithms with special cases for powers of two take a few more rounds for other
			// sizes.
			if got < 0.8*float64(want)-3 || got > 1.2*float64(want)+3 {
				t.Errorf("%v/%s of %d ranks: depth %v, want about %d", c, a.Name, size, got, want)
			}
		})
	}
}

// TestFiguresOfManyRanks: the sampled ranks include the busiest.
func TestFiguresOfManyRanks(t *testing.T) {
	for _, size := range []int{65, 96, 100} {
		forEach(size, func(c plan.Collective, _ int, a plan.Algorithm) {
			f := measure(c, a, size)
			all := figures{single: true}
			for _, p := range a.Plans(size, 0) {
				cost := plan.CostOf(p, p.Chunks)
				all.messages = max(all.messages, float64(cost.Messages))
				all.moved = max(all.moved, max(cost.Sent, cost.Received)/float64(p.Chunks))
				all.spans(p)
			}
			if f.messages < 0.8*all.messages || f.moved < 0.8*all.moved || f.largest < 0.8*all.largest || f.single != all.single {
				t.Errorf("%v/%s of %d ranks: got %+v, all ranks have %+v", c, a.Name, size, f, all)
			}
		})
	}
}

// TestMeasureMakesFewPlans bounds the work of the first call of a collective on each node.
func TestMeasureMakesFewPlans(t *testing.T) {
	for _, size := range []int{1, 2, 8, 64, 65, 256, 1000, 10000} {
		forEach(size, func(c plan.Collective, _ int, a plan.Algorithm) {
			made, largest := 0, 0
			inner := a.Plan
			a.Plan = func(rank, size, root int) plan.Plan {
				p := inner(rank, size, root)
				made++
				if size > depthSizeMax {
					largest++
				}
				return p
			}
			if size == 10000 && c != plan.AllReduce {
				return // One collective represents the others; their plans are long.
			}
			measure(c, a, size)
			if made > 2*depthSizeMax || largest > 10 {
				t.Errorf("%v/%s of %d ranks: made %d plans, %d of them large", c, a.Name, size, made, largest)
			}
		})
	}
}

// TestSingle compares figures.single with the plans of all ranks for every root: the engine
// divides blocks among several channels only if every span is a single chunk.
func TestSingle(t *testing.T) {
	for size := 2; size <= 40; size++ {
		forEach(size, func(c plan.Collective, _ int, a plan.Algorithm) {
			if !measure(c, a, size).single {
				return
			}
			if problem := notSingle(c, a, size); problem != "" {
				t.Errorf("%v/%s of %d ranks: %s", c, a.Name, size, problem)
			}
		})
	}
}

// notSingle names a span of several chunks in a plan of an algorithm.
func notSingle(c plan.Collective, a plan.Algorithm, size int) string {
	roots := 1
	if c.Rooted() {
		roots = size
	}
	for root := range roots {
		for rank, p := range a.Plans(size, root) {
			for _, round := range p.Rounds {
				for _, m := range round {
					for _, s := range touched(m) {
						if s.Len() != 1 {
							return fmt.Sprintf("root %d, rank %d: %v", root, rank, m)
						}
					}
				}
			}
		}
	}
	return ""
}

// touched returns the spans that a move reads or writes.
func touched(m plan.Move) []plan.Span {
	switch m.Kind {
	case plan.Send:
		return []plan.Span{m.A}
	case plan.Recv:
		return []plan.Span{m.Dst}
	case plan.Combine:
		return []plan.Span{m.Dst, m.A, m.B}
	}
	return []plan.Span{m.Dst, m.A}
}
