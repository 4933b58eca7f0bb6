// Package relaytest has graphs of nodes for tests of relays.
package relaytest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/nexar-go/nexar/internal/membership"
)

// A Graph has the neighbors of each node.
type Graph [][]int

// Ring returns a ring of n nodes.
func Ring(n int) Graph {
	g := make(Graph, n)
	for i := range n {
		g[i] = []int{(i + 1) % n, (i + n - 1) % n}
	}
	return g
}

// Random returns a connected graph of n nodes: a random tree and more random links.
func Random(rng *rand.Rand, n, more int) Graph {
	g := make(Graph, n)
	for i := 1; i < n; i++ {
		g.Link(i, rng.IntN(i))
	}
	for range more {
		g.Link(rng.IntN(n), rng.IntN(n))
	}
	return g
}

// Link links two nodes, unless they are linked or the same.
func (g Graph) Link(i, j int) {
	if i != j && !slices.Contains(g[i], j) {
		g[i], g[j] = append(g[i], j), append(g[j], i)
	}
}

// Distance returns the number of hops between two nodes, -1 if there is no path.
func (g Graph) Distance(from, to membership.NodeID) int { return g.distances(Index(to))[Index(from)] }

// distances returns the numbers of hops from a node, -1 to nodes that cannot be reached.
func (g Graph) distances(from int) []int {
	d := make([]int, len(g))
	for i := range d {
		d[i] = -1
	}
	d[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]] {
			if d[to] < 0 {
				d[to] = d[queue[0]] + 1
				queue = append(queue, to)
			}
		}
	}
	return d
}

// NextHops appends the neighbors of a node, nearest to the destination first, as [forward.Routes] does.
func (g Graph) NextHops(from int, destination membership.NodeID, hops []membership.NodeID) []membership.NodeID {
	distance := g.distances(Index(destination))
	peers := slices.DeleteFunc(slices.Clone(g[from]), func(i int) bool { return distance[i] < 0 })
	slices.SortStableFunc(peers, func(a, b int) int { return distance[a] - distance[b] })
	for _, i := range peers {
		hops = append(hops, ID(i))
	}
	return hops
}

// Clone returns a copy of the graph.
func (g Graph) Clone() Graph {
	c := make(Graph, len(g))
	for i, peers := range g {
		c[i] = slices.Clone(peers)
	}
	return c
}

// Unlink removes the link between two nodes.
func (g Graph) Unlink(i, j int) {
	g[i] = slices.DeleteFunc(g[i], func(k int) bool { return k == j })
	g[j] = slices.DeleteFunc(g[j], func(k int) bool { return k == i })
}

// Remove removes the links of a node.
func (g Graph) Remove(i int) {
	for _, j := range slices.Clone(g[i]) {
		g.Unlink(i, j)
	}
}

// Diameter returns the largest number of hops between two nodes.
func (g Graph) Diameter() (most int) {
	for i := range g {
		most = max(most, slices.Max(g.distances(i)))
	}
	return most
}

// ID returns the NodeID of node i.
func ID(i int) (id membership.NodeID) {
	binary.BigEndian.PutUint32(id[:], uint32(i)+1)
	return id
}

// Index returns the number of the node with an ID.
func Index(id membership.NodeID) int { return int(binary.BigEndian.Uint32(id[:])) - 1 }
