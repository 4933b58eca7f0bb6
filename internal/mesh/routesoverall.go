package mesh

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
)

// routesOverAll returns up to two next hops to each node: the links of this node that begin the shortest paths over links between
// neighbors in any of some views.
func (m *Mesh) routesOverAll(views []membership.View, direct, stopped map[membership.NodeID]bool) map[membership.NodeID][]membership.NodeID {
	near, routes := m.neighborsInAny(views), make(map[membership.NodeID][]membership.NodeID)
	type visit struct{ id, first membership.NodeID }
	var queue []visit
	reach := func(id, first membership.NodeID) {
		if to := routes[id]; id != m.cfg.Self && !stopped[id] && len(to) < 2 && !slices.Contains(to, first) {
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
func (m *Mesh) neighborsInAny(views []membership.View) func(membership.NodeID) []membership.NodeID {
	graphs, ranks := make([]topology.Graph, len(views)), make([]map[membership.NodeID]int, len(views))
	for i, v := range views {
		graphs[i], ranks[i] = m.cfg.Topology.Graph(v.Size()), make(map[membership.NodeID]int, v.Size())
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

// walkMin is the largest number of hops after which frames take links at random while nodes leave.
const walkMin = 40

// walks reports whether a frame that has made some hops takes links at random: nodes that leave do not know which links of newer views
// the others have, so that frames can go around in a circle by all tables, while there is a way over links that exist.
func (t *relayTables) walks(made int) bool {
	return t.leaving && len(t.list) > 0 && made >= min(len(t.list)*t.list[0].view.Size(), walkMin)
}

// appendWalk appends the neighbors in random order, behind the destination if there is a link to it.
func (t *relayTables) appendWalk(hops []membership.NodeID) []membership.NodeID {
	known := len(hops)
	for id := range t.direct {
		hops = append(hops, id)
	}
	walk := hops[known:]
	rand.Shuffle(len(walk), func(i, j int) { walk[i], walk[j] = walk[j], walk[i] })
	return hops
}
