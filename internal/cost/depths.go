package cost

import (
	"slices"

	"github.com/nexar-go/nexar/internal/plan"
)

// fewRanks are the numbers of ranks of fewDepths.
var fewRanks = [...]int{4, 8, 16, 32}

// A namedDepths has the depths of the plans of an algorithm for fewRanks.
type namedDepths struct {
	name   string
	depths [len(fewRanks)]uint8
}

// fewDepths are depths of algorithms, by collective. TestFewDepths compares them with the plans, and prints the lines. The depth of
// an algorithm without a line is computed from its plans.
var fewDepths = [plan.CollectiveLimit][]namedDepths{
	plan.Barrier: {
		{"dissemination", [...]uint8{2, 3, 4, 5}},
		{"two-phase", [...]uint8{2, 2, 2, 2}},
		{"flat", [...]uint8{1, 1, 1, 1}},
		{"leader", [...]uint8{2, 2, 2, 2}},
	},
	plan.Broadcast: {
		{"binomial", [...]uint8{2, 3, 4, 5}},
		{"chain", [...]uint8{3, 7, 15, 31}},
		{"scatter-ring", [...]uint8{3, 7, 15, 31}},
		{"flat", [...]uint8{1, 1, 1, 1}},
	},
	plan.Reduction: {
		{"binomial", [...]uint8{2, 3, 4, 5}},
		{"rabenseifner", [...]uint8{4, 6, 8, 10}},
		{"chain", [...]uint8{3, 7, 15, 31}},
		{"staged", [...]uint8{2, 2, 2, 2}},
		{"flat", [...]uint8{1, 1, 1, 1}},
	},
	plan.AllReduce: {
		{"recursive-doubling", [...]uint8{2, 3, 4, 5}},
		{"flat", [...]uint8{1, 1, 1, 1}},
		{"ordered", [...]uint8{4, 6, 8, 10}},
		{"rabenseifner", [...]uint8{4, 6, 8, 10}},
		{"direct", [...]uint8{2, 2, 2, 2}},
		{"circulant", [...]uint8{4, 6, 8, 10}},
		{"ring", [...]uint8{6, 14, 30, 62}},
		{"staged", [...]uint8{2, 2, 2, 2}},
		{"leader", [...]uint8{2, 2, 2, 2}},
		{"recursive-multiplying", [...]uint8{1, 2, 2, 3}},
		{"swing-1d", [...]uint8{4, 6, 8, 10}},
		{"swing-2d", [...]uint8{4, 6, 8, 10}},
		{"swing-3d", [...]uint8{4, 6, 8, 10}},
		{"swing-short-2d", [...]uint8{2, 3, 4, 5}},
		{"swing-short-3d", [...]uint8{2, 3, 4, 5}},
	},
	plan.Gather: {
		{"binomial", [...]uint8{2, 3, 4, 5}},
		{"direct", [...]uint8{1, 1, 1, 1}},
	},
	plan.AllGather: {
		{"circulant", [...]uint8{2, 3, 4, 5}},
		{"direct", [...]uint8{1, 1, 1, 1}},
		{"ring", [...]uint8{3, 7, 15, 31}},
		{"halving", [...]uint8{3, 4, 5, 6}},
		{"leader", [...]uint8{2, 2, 2, 2}},
		{"pat", [...]uint8{2, 3, 4, 5}},
	},
	plan.Scatter: {
		{"binomial", [...]uint8{2, 3, 4, 5}},
		{"direct", [...]uint8{1, 1, 1, 1}},
	},
	plan.ReduceScatter: {
		{"circulant", [...]uint8{2, 3, 4, 5}},
		{"rabenseifner", [...]uint8{3, 4, 5, 6}},
		{"direct", [...]uint8{1, 1, 1, 1}},
		{"ring", [...]uint8{3, 7, 15, 31}},
		{"staged", [...]uint8{1, 1, 1, 1}},
		{"leader", [...]uint8{2, 2, 2, 2}},
		{"pat", [...]uint8{2, 3, 4, 5}},
	},
	plan.AllToAll: {
		{"pairwise", [...]uint8{1, 1, 1, 1}},
		{"bruck", [...]uint8{2, 3, 4, 5}},
	},
	plan.Scan: {
		{"recursive-doubling", [...]uint8{2, 3, 4, 5}},
		{"flat", [...]uint8{1, 1, 1, 1}},
	},
	plan.ExclusiveScan: {
		{"recursive-doubling", [...]uint8{2, 3, 4, 5}},
		{"flat", [...]uint8{1, 1, 1, 1}},
	},
}

// fewDepth returns the depth of the plans of an algorithm for one of fewRanks.
func fewDepth(c plan.Collective, a plan.Algorithm, ranks int) int {
	known := fewDepths[c]
	i := slices.IndexFunc(known, func(d namedDepths) bool { return d.name == a.Name })
	if n := slices.Index(fewRanks[:], ranks); i >= 0 && n >= 0 {
		return int(known[i].depths[n])
	}
	return depth(a, a.Plans(ranks, 0))
}
