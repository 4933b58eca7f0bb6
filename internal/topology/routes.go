package topology

import "slices"

// Unreachable is the number of hops to a rank without a route, and None stands for no rank.
const (
	Unreachable = -1
	None        = -1
)

// Broken says which parts of a graph carry nothing. The zero value is an intact graph.
type Broken struct {
	// Ranks have failed: no route passes through one or ends at one.
	Ranks []int
	// Links are the neighbors that the node has lost its link to. No route begins there, but routes may
	// reach them over other neighbors.
	Links []int
}

// Routes is the routing table of a node. It is immutable.
type Routes struct {
	self   int
	labels []labels // of each destination
}

// labels are the two shortest routes to a rank that begin with different neighbors.
type labels [2]struct{ first, hops int32 } // first is None if there is no route

// A Route is the way to a destination.
type Route struct {
	// Next is the neighbor on the shortest route, or None. Nodes that all forward to Next deliver in Hops
	// hops: with each hop the destination is one hop nearer.
	Next, Hops int
	// Alternative is another neighbor, or None. Its shortest route that avoids this node has AlternativeHops
	// hops, with the one to the neighbor.
	Alternative, AlternativeHops int
}

// IsLoopFree reports whether a frame sent to Alternative does not come back, even if no other node knows why
// the route is not taken: the alternative neighbor is not farther from the destination than this node.
//
// Otherwise it reaches the destination if no node returns a frame to the node that has sent it as long as there
// is an alternative, or if the other nodes know the broken parts as well. A limit of hops bounds the rest.
//
// See Atlas and Zinin, "Basic Specification for IP Fast Reroute: Loop-Free Alternates", RFC 5286.
func (r Route) IsLoopFree() bool { return r.Alternative != None && r.AlternativeHops <= r.Hops+1 }

// Routes returns the routing table of a rank, by breadth-first search. Among equal routes, those with
// the first neighbors in the order of [Graph.Neighbors] are taken.
func (g Graph) Routes(self int, broken Broken) *Routes {
	r := &Routes{self: self, labels: make([]labels, g.n)}
	for i := range r.labels {
		r.labels[i][0].first, r.labels[i][1].first = None, None
	}
	if self < 0 || self >= g.n {
		return r
	}
	gone := g.set(broken.Ranks)
	type visit struct{ rank, label int32 }
	var queue []visit
	// reach gives a rank a label, unless it has two, or one with the same first neighbor.
	reach := func(rank, first, hops int) {
		l := &r.labels[rank]
		for i := range l {
			if l[i].first == int32(first) {
				return
			}
			if l[i].first == None {
				l[i].first, l[i].hops = int32(first), int32(hops)
				queue = append(queue, visit{int32(rank), int32(i)})
				return
			}
		}
	}
	var room []int
	for _, first := range g.Neighbors(self) {
		if !gone[first] && !slices.Contains(broken.Links, first) {
			reach(first, first, 1)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		label := r.labels[from.rank][from.label]
		room = g.appendNeighbors(room[:0], int(from.rank))
		for _, rank := range room {
			if rank != self && !gone[rank] {
				reach(rank, int(label.first), int(label.hops)+1)
			}
		}
	}
	return r
}

// set returns the set of some ranks; ranks outside the graph are ignored.
func (g Graph) set(ranks []int) []bool {
	set := make([]bool, g.n)
	for _, rank := range ranks {
		if rank >= 0 && rank < g.n {
			set[rank] = true
		}
	}
	return set
}

// To returns the route to a rank. The route of a node to itself has no neighbor and no hop.
func (r *Routes) To(rank int) Route {
	switch {
	case rank < 0 || rank >= len(r.labels):
		return Route{Next: None, Hops: Unreachable, Alternative: None, AlternativeHops: Unreachable}
	case rank == r.self:
		return Route{Next: None, Alternative: None, AlternativeHops: Unreachable}
	}
	route, l := Route{Next: None, Hops: Unreachable, Alternative: None, AlternativeHops: Unreachable}, r.labels[rank]
	if l[0].first != None {
		route.Next, route.Hops = int(l[0].first), int(l[0].hops)
	}
	if l[1].first != None {
		route.Alternative, route.AlternativeHops = int(l[1].first), int(l[1].hops)
	}
	return route
}

// Hops returns the number of hops to a rank: 0 to the node itself, and Unreachable without a route.
func (r *Routes) Hops(rank int) int { return r.To(rank).Hops }

// Farthest returns the number of links between a rank and the farthest one from it, by breadth-first search.
func (g Graph) Farthest(from int) (hops int) {
	distance := make([]int, g.n)
	distance[from] = 1
	var room []int
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		hops = distance[queue[0]] - 1
		room = g.appendNeighbors(room[:0], queue[0])
		for _, rank := range room {
			if distance[rank] == 0 {
				distance[rank] = distance[queue[0]] + 1
				queue = append(queue, rank)
			}
		}
	}
	return hops
}
