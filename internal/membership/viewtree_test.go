package membership

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// viewTopologies are the topologies of the worlds in which views are tested, the full one first.
var viewTopologies = []string{"full", "k-regular:4", "hypercube"}

// TestViewTree: each node that stays is in the tree once, below a root, and its parent is a neighbor
// in the graph of watches.
func TestViewTree(t *testing.T) {
	for seed := range uint64(300) {
		graph := WatchGraph{Topology: mustParse(t, viewTopologies[seed%3])}
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 1 + rng.IntN(200)
		keep := 1 + rng.IntN(20) // of 20; if few nodes stay, some have no neighbor
		var gone []uint32
		for rank := range n {
			if rng.IntN(20) >= keep {
				gone = append(gone, uint32(rank))
			}
		}
		tree := newViewTree(graph.Topology, n, gone, rng.Uint64())
		v := View{Nodes: make([]Node, n)}
		roots := 0
		seen := make(map[int32]bool)
		for _, rank := range tree.order {
			switch p := tree.parent[rank]; {
			case p == fromSeed:
				roots++
			case !seen[p]:
				t.Fatalf("seed %d: rank %d comes before its parent %d", seed, rank, p)
			case !graph.Connects(v, int(rank), int(p)):
				t.Fatalf("seed %d: ranks %d and %d do not watch each other", seed, rank, p)
			case tree.height[p] <= tree.height[rank]:
				t.Fatalf("seed %d: rank %d is higher than its parent", seed, rank)
			}
			if seen[rank] || slices.Contains(gone, uint32(rank)) {
				t.Fatalf("seed %d: rank %d is in the tree twice, or gone", seed, rank)
			}
			seen[rank] = true
		}
		if len(seen) != n-len(gone) || len(gone) == 0 && roots != min(viewRoots, n) {
			t.Fatalf("seed %d: %d of %d nodes in the tree, %d roots", seed, len(seen), n-len(gone), roots)
		}
	}
}
