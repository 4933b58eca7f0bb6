package selector

import (
	"cmp"
	"slices"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
)

// Ways returns all choices for a collective of so many bytes, of the vector or
// of all blocks together: first the one that is made for such a Task, with regard to
// pins, then the others, on the board and over links, the cheapest by the model
// first. Each can be pinned. Canonical is that of the Task.
func (b *Selector) Ways(k plan.Collective, bytes int, canonical bool) []cost.Choice {
	t := b.taskOf(k, bytes)
	t.Canonical = canonical
	how, need := b.how.Load(), b.need(t)
	var ways []cost.Choice
	if how.board != nil {
		ways = slices.DeleteFunc(how.tuner.Ways(need), func(c cost.Choice) bool { return !b.fits(how, t, c) })
	}
	ways = append(ways, how.overLinks().Ways(need)...)
	slices.SortStableFunc(ways, func(a, b cost.Choice) int { return cmp.Compare(a.Seconds, b.Seconds) })

	first := b.choose(how, t)
	i := slices.IndexFunc(ways, func(c cost.Choice) bool { return c.Index == first.Index && c.Shared == first.Shared })
	if i >= 0 {
		if ways[i].Channels == first.Channels {
			first = ways[i] // Its time is that of this size, not of a similar one.
		}
		ways = slices.Delete(ways, i, i+1)
	}
	return slices.Insert(ways, 0, first)
}

// taskOf is a Task of the usual kind.
func (b *Selector) taskOf(k plan.Collective, bytes int) Task {
	t := Task{Kind: k, Elem: 1, Count: bytes}
	switch k {
	case plan.Barrier:
		t.Count = 0
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		t.Count, t.Blocks = bytes/b.size, true
	case plan.Scan, plan.ExclusiveScan:
		t.Ordered = true
	}
	return t
}
