package selector

import (
	"cmp"
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// Ways returns all choices for a collective of so many bytes, of the vector or
// of all blocks together: first the one that is made for such a Shape, with regard to
// pins, then the others, by all executors, in the order of their cost by the model. Each can be
// pinned. Canonical is that of the Shape.
func (s *Selector) Ways(k plan.Collective, bytes int, canonical bool) []Choice {
	t := s.shapeOf(k, bytes)
	t.Canonical = canonical
	how, need := s.how.Load(), s.need(t)
	var ways []Choice
	if x := how.preferred; x != nil {
		for _, c := range x.Tuner.Ways(need) {
			if w := (Choice{c, x.ID}); s.fits(how, t, w) {
				ways = append(ways, w)
			}
		}
	}
	for _, c := range how.links.Tuner.Ways(need) {
		ways = append(ways, Choice{c, exec.Links})
	}
	slices.SortStableFunc(ways, func(a, b Choice) int { return cmp.Compare(a.Seconds, b.Seconds) })

	first := s.choose(how, t)
	i := slices.IndexFunc(ways, func(c Choice) bool { return c.Index == first.Index && c.Executor == first.Executor })
	if i >= 0 {
		if ways[i].Channels == first.Channels {
			first = ways[i] // Its time is that of this size, not of a similar one.
		}
		ways = slices.Delete(ways, i, i+1)
	}
	return slices.Insert(ways, 0, first)
}

// shapeOf returns the Shape of an ordinary call.
func (s *Selector) shapeOf(k plan.Collective, bytes int) Shape {
	t := Shape{Kind: k, Elem: 1, Count: bytes}
	switch k {
	case plan.Barrier:
		t.Count = 0
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		t.Count, t.Blocks = bytes/s.size, true
	case plan.Scan, plan.ExclusiveScan:
		t.Ordered = true
	}
	return t
}
