// Package topology says which nodes of a world are linked, and how frames reach the others.
//
// A [Topology] is a rule. [Topology.Graph] applies it to a number of ranks: the graph follows from the
// number of nodes in a view alone, so all nodes compute the same one and views carry nothing about it.
// [Graph.Routes] is the routing table of one node.
//
// All functions are pure. The graph of a sparse topology with K neighbors costs O(K) for the neighbors of a
// rank and O(n·K) for a routing table.
package topology

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// A Topology is a rule that selects the pairs of nodes that are linked. The zero Topology is full. Equal
// topologies compare equal.
type Topology struct {
	kind kind
	k    int // of kRegular
}

type kind uint8

const (
	full kind = iota
	kRegular
	hypercube
)

// Names are the forms of a Topology that [Parse] reads. "k_regular:K" and "full_mesh" are the same as the
// first two.
const Names = "full, k-regular:K, hypercube"

// Parse reads a topology: "full", "full_mesh" or "", "k-regular:K" or "k_regular:K" with K of at least 2, or
// "hypercube". The error gives the reason without the value.
func Parse(s string) (Topology, error) {
	name, degree, hasDegree := strings.Cut(s, ":")
	switch strings.ToLower(name) {
	case "k-regular", "k_regular":
		k, err := strconv.ParseUint(degree, 10, 31)
		switch {
		case !hasDegree || degree == "":
			return Topology{}, fmt.Errorf("the number of neighbors is missing: write %s:4, for example", name)
		case err != nil:
			return Topology{}, fmt.Errorf("the number of neighbors is not a whole number between 2 and %d", 1<<31-1)
		case k < 2:
			return Topology{}, fmt.Errorf("the number of neighbors is %d: must be at least 2, since nodes with fewer neighbors are not all connected", k)
		}
		return Topology{kRegular, int(k)}, nil
	case "full", "full_mesh", "":
		if !hasDegree {
			return Topology{}, nil
		}
	case "hypercube":
		if !hasDegree {
			return Topology{kind: hypercube}, nil
		}
	default:
		return Topology{}, fmt.Errorf("not one of %s (with K at least 2)", Names)
	}
	return Topology{}, fmt.Errorf("%q has no number of neighbors: not one of %s (with K at least 2)", name, Names)
}

// String returns the form that Parse reads, the same for equal topologies.
func (t Topology) String() string {
	switch t.kind {
	case kRegular:
		return fmt.Sprintf("k-regular:%d", t.k)
	case hypercube:
		return "hypercube"
	default:
		return "full"
	}
}

// IsFull reports whether the topology links all nodes, for any number of them.
func (t Topology) IsFull() bool { return t.kind == full }

// HopsMax is the largest distance of two ranks that relays cross.
const HopsMax = 64

// Note says that the graph of n ranks links all of them, that one rank has a neighbor less than the
// others, or that some ranks are more than HopsMax links apart. Otherwise it is empty.
func (t Topology) Note(n int) string {
	switch {
	case t.kind != kRegular || n < 2:
		return ""
	case t.k > n-1:
		return fmt.Sprintf("%v: each of %d nodes has only %d others, and is linked to all of them", t, n, n-1)
	case t.k%2 == 1 && n%2 == 1:
		return fmt.Sprintf("%v: the last of %d nodes has %d neighbors, since an odd number of nodes cannot all have %d", t, n, t.k-1, t.k)
	}
	if err := t.CheckDistance(n); err != nil {
		return fmt.Sprintf("%v: %v", t, err)
	}
	return ""
}

// CheckDistance returns an error without the topology if two of n ranks are more than HopsMax links apart. Rings of up to twice as
// many ranks, and hypercubes, have no such ranks. Larger graphs cost O(n·K).
func (t Topology) CheckDistance(n int) error {
	if t.kind != kRegular || n <= 2*HopsMax {
		return nil
	}
	g := t.Graph(n)
	if farthest := max(g.Farthest(0), g.Farthest(n-1)); farthest > HopsMax { // Only the last rank of an odd number differs.
		return fmt.Errorf("some of %d ranks are %d links apart: must be at most %d: use more neighbors, or a hypercube", n, farthest, HopsMax)
	}
	return nil
}

// CheckSize returns an error if no graph of n ranks has the number of neighbors of the topology at each rank, or if some of them are
// more than HopsMax links apart. [Topology.Graph] completes such a graph, as worlds change their sizes; a program that starts a
// world of a fixed size can refuse it.
func (t Topology) CheckSize(n int) error {
	switch {
	case t.kind != kRegular:
		return nil
	case t.k >= n:
		return fmt.Errorf("%d neighbors of each of %d ranks: must be less than the number of ranks: use full, or more ranks", t.k, n)
	case t.k%2 == 1 && n%2 == 1:
		return fmt.Errorf("%d neighbors of each of %d ranks: an odd number of ranks cannot all have an odd number of neighbors: use an even number", t.k, n)
	}
	return t.CheckDistance(n)
}

// A Graph is a Topology for a number of ranks: undirected, connected, without loops. Its methods may be
// called concurrently.
type Graph struct {
	topology Topology
	n        int
	// steps are the distances of neighbors in both directions, of a k-regular graph that is not complete.
	steps []int
}

// Graph returns the graph of n ranks.
func (t Topology) Graph(n int) Graph {
	g := Graph{topology: t, n: max(n, 0)}
	if t.kind == kRegular && !g.isComplete() {
		g.steps = steps(n, t.k)
	}
	return g
}

// isComplete reports whether all pairs of ranks are linked.
func (g Graph) isComplete() bool {
	return g.topology.kind == full || g.topology.kind == kRegular && g.topology.k >= g.n-1
}

// Degree returns the maximum number of neighbors of a rank: n-1, at most K, or ⌈log₂ n⌉.
func (g Graph) Degree() int {
	switch {
	case g.n < 2:
		return 0
	case g.isComplete():
		return g.n - 1
	case g.topology.kind == hypercube:
		return dimensions(g.n)
	}
	return g.topology.k
}

// Neighbors returns the neighbors of a rank, the next higher ranks first and the lower ranks after the
// highest. It returns none for a rank outside the graph.
func (g Graph) Neighbors(rank int) []int { return g.appendNeighbors(nil, rank) }

// IsNeighbor reports whether two ranks are linked. No rank is its own neighbor.
func (g Graph) IsNeighbor(a, b int) bool {
	switch {
	case a == b || min(a, b) < 0 || max(a, b) >= g.n:
		return false
	case g.isComplete():
		return true
	}
	var room [64]int
	for _, other := range g.appendNeighbors(room[:0], a) {
		if other == b {
			return true
		}
	}
	return false
}

// dimensions returns the dimensions of the smallest hypercube with n corners: ⌈log₂ n⌉.
func dimensions(n int) int { return bits.Len(uint(max(n, 1) - 1)) }
