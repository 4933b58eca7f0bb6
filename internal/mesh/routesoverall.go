package mesh

import (
	"bytes"
	"maps"
	"slices"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
)

// routesOverAll returns up to two next hops to each node: the links of this node that begin the shortest paths over links between
// neighbors in any of some views.
func (r *Reach) routesOverAll(views []membership.View, direct, stopped map[membership.NodeID]bool) map[membership.NodeID][]membership.NodeID {
	near, routes := r.neighborsInAny(views), make(map[membership.NodeID][]membership.NodeID)
	type visit struct{ id, first membership.NodeID }
	var queue []visit
	reach := func(id, first membership.NodeID) {
		if to := routes[id]; id != r.self && !stopped[id] && len(to) < 2 && !slices.Contains(to, first) {
			routes[id] = append(to, first)
			queue = append(queue, visit{id, first})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(direct), func(a, b membership.NodeID) int { return bytes.Compare(a[:], b[:]) }) {
		reach(id, id)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, id := range near(queue[0].id) {
			reach(id, queue[0].first)
		}
	}
	return routes
}

// neighborsInAny returns a function that returns the neighbors of a node in any of some views.
func (r *Reach) neighborsInAny(views []membership.View) func(membership.NodeID) []membership.NodeID {
	graphs, ranks := make([]topology.Graph, len(views)), make([]map[membership.NodeID]int, len(views))
	for i, v := range views {
		graphs[i], ranks[i] = r.topology.Graph(v.Size()), make(map[membership.NodeID]int, v.Size())
		for rank, node := range v.Nodes {
			ranks[i][node.ID] = rank
		}
	}
	return func(id membership.NodeID) (near []membership.NodeID) {
		for i, v := range views {
			if rank, in := ranks[i][id]; in {
				for _, other := range graphs[i].Neighbors(rank) {
					near = append(near, v.Nodes[other].ID)
				}
			}
		}
		return near
	}
}
