package membership

import "fmt"

// A View is who is in the world from one change to the next. No two views of
// a cluster have the same epoch. It is never changed: who needs another order
// or other nodes makes a new one.
type View struct {
	Epoch uint64
	Nodes []Node // the place of a node is its rank
}

// Size is the number of nodes.
func (v View) Size() int { return len(v.Nodes) }

// Rank is the place of id in the view.
func (v View) Rank(id NodeID) (rank int, ok bool) {
	for i := range v.Nodes {
		if v.Nodes[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

// has reports whether a node is in the view.
func (v View) has(id NodeID) bool {
	_, in := v.Rank(id)
	return in
}

// Describe names a rank in messages to people.
func (v View) Describe(rank int) string {
	if rank < 0 || rank >= len(v.Nodes) {
		return fmt.Sprintf("rank %d (not in the view)", rank)
	}
	return fmt.Sprintf("rank %d %v", rank, v.Nodes[rank])
}

// Check reports the first thing that no view may have: a node twice, or one
// without an address. Views that came over a network are checked before use.
func (v View) Check() error {
	seen := make(map[NodeID]bool, len(v.Nodes))
	for i, n := range v.Nodes {
		if seen[n.ID] {
			return fmt.Errorf("node %v is in view %d twice", n.ID, v.Epoch)
		}
		seen[n.ID] = true
		if err := checkNode(n); err != nil {
			return fmt.Errorf("rank %d of view %d: %w", i, v.Epoch, err)
		}
	}
	return nil
}

// Without are the ranks of nodes that another view does not have.
func (v View) Without(other View) (ranks []int) {
	for rank, n := range v.Nodes {
		if _, in := other.Rank(n.ID); !in {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// without is v but for some nodes.
func (v View) without(gone func(id NodeID) bool) View {
	w := View{Epoch: v.Epoch}
	for _, n := range v.Nodes {
		if !gone(n.ID) {
			w.Nodes = append(w.Nodes, n)
		}
	}
	return w
}

// clone shares no memory with v.
func (v View) clone() View {
	nodes := make([]Node, len(v.Nodes))
	for i, n := range v.Nodes {
		nodes[i] = n.clone()
	}
	v.Nodes = nodes
	return v
}
