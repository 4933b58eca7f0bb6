package membership

import (
	"slices"

	"github.com/nexar-go/nexar/internal/topology"
)

// viewRoots is the number of nodes that get a difference from the seed, if so many stay. A world
// of at most so many nodes has no other nodes in the tree.
const viewRoots = 8

const (
	fromSeed = -1 // the parent of a root
	inNoView = -2 // the parent of a node that is not in the next view
)

// A viewTree is the tree down which a difference travels, by the ranks of the view before it. It
// contains the nodes that stay. Roots get the difference from the seed. Every other node has a
// parent that watches it or that it watches ([WatchGraph]), so that the two are linked already, also
// with links on demand. In a sparse topology the two are neighbors.
//
// The tree is the result of a breadth-first search from all roots at once. Roots are spread
// evenly over the ranks, from a rank that depends on the epoch: a node that does not forward
// differences is no root for ever.
type viewTree struct {
	parent []int32
	order  []int32 // the nodes of the tree, each after its parent
	height []int   // of the subtree of a node; 0: no children
}

// newViewTree returns the tree of the difference that removes the ranks gone from a view of n nodes
// and leads to an epoch, in a world with a topology.
func newViewTree(links topology.Topology, n int, gone []uint32, epoch uint64) *viewTree {
	t := &viewTree{parent: slices.Repeat([]int32{inNoView}, n), height: make([]int, n)}
	removed := make([]bool, n)
	for _, rank := range gone {
		removed[rank] = true
	}
	stay := make([]int32, 0, n)
	for rank := range n {
		if !removed[rank] {
			stay = append(stay, int32(rank))
		}
	}
	if len(stay) == 0 {
		return t
	}
	roots := min(viewRoots, len(stay))
	first := int(epoch % uint64(len(stay)))
	for i := range roots {
		t.add(stay[(first+i*len(stay)/roots)%len(stay)], fromSeed)
	}
	peers, next := watchPeers(links, n), 0
	for _, rank := range stay {
		next = t.search(next, peers, removed)
		if t.parent[rank] == inNoView { // All its neighbors are gone.
			t.add(rank, fromSeed)
		}
	}
	t.search(next, peers, removed)
	for _, rank := range slices.Backward(t.order) {
		if p := t.parent[rank]; p >= 0 {
			t.height[p] = max(t.height[p], t.height[rank]+1)
		}
	}
	return t
}

func (t *viewTree) add(rank, parent int32) {
	if t.parent[rank] == inNoView {
		t.parent[rank] = parent
		t.order = append(t.order, rank)
	}
}

// search adds the peers of the nodes from the index next of the order on, and those of the
// added nodes. It returns the length of the order.
func (t *viewTree) search(next int, peers func(rank int) []int, removed []bool) int {
	for ; next < len(t.order); next++ {
		rank := t.order[next]
		for _, peer := range peers(int(rank)) {
			if !removed[peer] {
				t.add(int32(peer), rank)
			}
		}
	}
	return next
}

// watchPeers returns a function that returns the watches and the watchers of a rank of n. The slice is
// valid until the next call.
func watchPeers(links topology.Topology, n int) func(rank int) []int {
	if !links.IsFull() {
		return links.Graph(n).Neighbors
	}
	steps := WatchDistances(n, 0)
	list := make([]int, 0, 2*len(steps))
	return func(rank int) []int {
		list = list[:0]
		for _, step := range steps {
			list = append(list, (rank+step)%n, (rank-step+n)%n)
		}
		return list
	}
}

// has reports whether a rank is in the tree.
func (t *viewTree) has(rank int) bool {
	return rank >= 0 && rank < len(t.parent) && t.parent[rank] != inNoView
}

// children returns the children of a rank, or the roots for fromSeed.
func (t *viewTree) children(rank int) (ranks []uint32) {
	for _, child := range t.order {
		if t.parent[child] == int32(rank) {
			ranks = append(ranks, uint32(child))
		}
	}
	return ranks
}

// subtrees returns the nodes of the subtrees of some ranks.
func (t *viewTree) subtrees(ranks []uint32) (nodes []int) {
	in := make([]bool, len(t.parent))
	for _, rank := range ranks {
		if t.has(int(rank)) {
			in[rank] = true
		}
	}
	for _, rank := range t.order {
		if p := t.parent[rank]; p >= 0 && in[p] {
			in[rank] = true
		}
		if in[rank] {
			nodes = append(nodes, int(rank))
		}
	}
	return nodes
}
