package membership

import (
	"fmt"
	"slices"
)

// A View is an epoch and its nodes, ordered by rank. No two views of a cluster have the
// same epoch. Views are immutable.
type View struct {
	Epoch uint64
	Nodes []Node // ordered by rank
}

// Size returns the number of nodes.
func (v View) Size() int { return len(v.Nodes) }

// Rank returns the rank of a node.
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

// Describe describes the node of a rank for messages.
func (v View) Describe(rank int) string {
	if rank < 0 || rank >= len(v.Nodes) {
		return fmt.Sprintf("rank %d (not in the view)", rank)
	}
	return fmt.Sprintf("rank %d %v", rank, v.Nodes[rank])
}

// Check returns an error if a node is in the view twice or lacks an address. Views from
// the network are checked before use.
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

// Without returns the ranks of nodes that are not in another view.
func (v View) Without(other View) (ranks []int) {
	in := other.Set()
	for rank := range v.Nodes {
		if !in[v.Nodes[rank].ID] {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Set returns the nodes of the view.
func (v View) Set() map[NodeID]bool {
	in := make(map[NodeID]bool, len(v.Nodes))
	for i := range v.Nodes {
		in[v.Nodes[i].ID] = true
	}
	return in
}

// without returns v without the nodes that are gone.
// It returns v itself if no node is gone: the arbiter calls it for every message of a node.
func (v View) without(gone func(id NodeID) bool) View {
	isGone := func(n Node) bool { return gone(n.ID) }
	first := slices.IndexFunc(v.Nodes, isGone)
	if first < 0 {
		v.Nodes = slices.Clip(v.Nodes)
		return v
	}
	w := View{Epoch: v.Epoch, Nodes: slices.Clone(v.Nodes[:first])}
	for _, n := range v.Nodes[first:] {
		if !gone(n.ID) {
			w.Nodes = append(w.Nodes, n)
		}
	}
	return w
}

// clone returns a copy that shares no memory with v.
func (v View) clone() View {
	nodes := make([]Node, len(v.Nodes))
	for i, n := range v.Nodes {
		nodes[i] = n.clone()
	}
	v.Nodes = nodes
	return v
}
