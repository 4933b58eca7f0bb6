package topology

// A Tree is a spanning tree of the ranks of a graph that its root reaches, with shortest paths from the root. It
// is immutable.
type Tree struct {
	parents  []int32 // None for the root and for ranks that are not in the tree
	children [][]int
	depth    int
}

// Tree returns the spanning tree of a root that avoids failed ranks, by breadth-first search. All nodes compute
// the same tree: a node that has received a message from its parent passes it on to its children.
func (g Graph) Tree(root int, failed []int) *Tree {
	t := &Tree{parents: make([]int32, g.n), children: make([][]int, g.n)}
	for i := range t.parents {
		t.parents[i] = None
	}
	seen := g.set(failed)
	if root < 0 || root >= g.n || seen[root] {
		return t
	}
	seen[root] = true
	var room []int
	for level := []int{root}; len(level) > 0; t.depth++ {
		var next []int
		for _, rank := range level {
			room = g.appendNeighbors(room[:0], rank)
			for _, child := range room {
				if !seen[child] {
					seen[child] = true
					t.parents[child] = int32(rank)
					t.children[rank] = append(t.children[rank], child)
					next = append(next, child)
				}
			}
		}
		level = next
	}
	t.depth--
	return t
}

// Parent returns the parent of a rank, or None for the root and for ranks that are not in the tree.
func (t *Tree) Parent(rank int) int {
	if rank < 0 || rank >= len(t.parents) {
		return None
	}
	return int(t.parents[rank])
}

// Children returns the ranks that get the messages of the root from a rank.
func (t *Tree) Children(rank int) []int {
	if rank < 0 || rank >= len(t.children) {
		return nil
	}
	return t.children[rank]
}

// Depth returns the number of hops from the root to the farthest rank.
func (t *Tree) Depth() int { return t.depth }
