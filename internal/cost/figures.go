package cost

import (
	"math/bits"
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
)

// depthSizeMax is the largest number of ranks with all plans evaluated. For more ranks a few
// plans are sampled, because the first call of a collective evaluates all its algorithms.
const depthSizeMax = 64

type figureKey struct {
	collective plan.Collective
	index      int
	size       int
}

// known has computed properties of algorithms, by collective, index and number of ranks.
type known[T any] map[figureKey]T

// of returns the property of the algorithm with an index. The first call computes it.
func (k *known[T]) of(n Need, index int, compute func() T) T {
	key := figureKey{n.Collective, index, n.Size}
	v, ok := (*k)[key]
	if !ok {
		if v = compute(); *k == nil {
			*k = make(known[T])
		}
		(*k)[key] = v
	}
	return v
}

// figures are the costs of a plan for a vector of one byte.
type figures struct {
	depth, messages        float64
	moved, reduced, copied float64
	largest                float64 // message
	single                 bool    // every message is a single chunk
}

func measure(c plan.Collective, a plan.Algorithm, size int) figures {
	f := figures{single: true}
	plans := samples(a, size, 0)
	if size > depthSizeMax {
		f.depth = float64(depthBeyond(a, size, 8))
	} else {
		f.depth = float64(depth(a, plans))
	}
	for _, p := range plans {
		// With one byte for each chunk the counts are exact, in any order.
		cost, chunks := plan.CostOf(p, p.Chunks), float64(p.Chunks)
		f.messages = max(f.messages, float64(cost.Messages))
		f.moved = max(f.moved, max(cost.Sent, cost.Received)/chunks)
		f.reduced = max(f.reduced, cost.Reduced/chunks)
		f.copied = max(f.copied, cost.Copied/chunks)
		f.spans(p)
	}
	if f.single && c.Rooted() {
		// With three ranks the tree of another root has longer messages.
		for _, p := range samples(a, size, size-1) {
			f.spans(p)
		}
	}
	return f
}

// samples returns the plans of all ranks, or of a few if there are many.
func samples(a plan.Algorithm, size, root int) (plans []plan.Plan) {
	if size <= depthSizeMax {
		return a.Plans(size, root)
	}
	for _, rank := range sampled(size) {
		plans = append(plans, a.Plan(rank, size, root))
	}
	return plans
}

// sampled returns the ranks of the plans that samples returns.
func sampled(size int) []int {
	if size > depthSizeMax {
		return few(size)
	}
	return everyRank(size)
}

// few returns some ranks: the first ones, since roots and leaders have the most work in many plans, one in the middle, and the last.
func few(size int) []int {
	if size <= 5 {
		return everyRank(size)
	}
	return []int{0, 1, 2, size / 2, size - 1}
}

func everyRank(size int) []int {
	ranks := make([]int, size)
	for rank := range ranks {
		ranks[rank] = rank
	}
	return ranks
}

func depth(a plan.Algorithm, plans []plan.Plan) int {
	d, err := plan.Depth(plans)
	if err != nil {
		panic("cost: " + a.Name + ": " + err.Error())
	}
	return d
}

// depthBeyond estimates the depth of the plans of many ranks. A single plan does not determine
// it: in a chain every rank has two messages, and the last rank waits for all others. Depths
// are constant or grow with the number of ranks or its logarithm; their growth from few ranks to
// four times as many distinguishes the three.
//
// The depths with few ranks are constants, [plan.Algorithm].Depths: to make the plans of all algorithms of a collective for 16 ranks
// would be much of the work of its first call.
func depthBeyond(a plan.Algorithm, size, few int) int {
	return int(grownTo(size, few, float64(fewDepth(a, few)), float64(fewDepth(a, 4*few))))
}

// grownTo extrapolates a figure of few and of four times as many ranks to size ranks: it grows like their number, or like the
// logarithm of that.
func grownTo(size, few int, least, most float64) float64 {
	growth, more := most-least, float64(3*few)
	switch {
	case growth < 0: // The work of some ranks is divided among more of them.
		shrinks := -growth * float64(4*few) / 3 // a + shrinks/size
		return most - float64(shrinks/float64(4*few)) + float64(shrinks/float64(size))
	case growth >= more/2:
		return most + float64(growth*float64(size-4*few)/more)
	}
	return most + float64(growth*float64(bits.Len(uint(size-1))-bits.Len(uint(4*few-1)))/2)
}

// fewDepth returns the depth of the plans of an algorithm for one of plan.DepthRanks.
func fewDepth(a plan.Algorithm, ranks int) int {
	if i := slices.Index(plan.DepthRanks[:], ranks); i >= 0 && a.Depths[i] > 0 {
		return int(a.Depths[i])
	}
	return depth(a, a.Plans(ranks, 0))
}

// spans updates the figures for the lengths of messages.
func (f *figures) spans(p plan.Plan) {
	for _, round := range p.Rounds {
		for i := range round {
			m := &round[i]
			s := m.Dst
			if m.Kind == plan.Send {
				s = m.A
			}
			f.single = f.single && s.Len() == 1
			if m.Kind != plan.Copy && m.Kind != plan.Combine {
				f.largest = max(f.largest, float64(s.Len())/float64(p.Chunks))
			}
		}
	}
}
