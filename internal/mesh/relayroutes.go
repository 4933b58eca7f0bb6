package mesh

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
)

// loopMin is the largest number of hops after which frames take the routes of another view, in a world of more nodes.
const loopMin = 48

// relayRoutes are the routes of a node by NodeID. They implement forward.Routes.
type relayRoutes struct {
	tables atomic.Pointer[relayTables]
}

// relayTables are the routes of a node at one time. They are immutable.
type relayTables struct {
	// direct has the nodes with a link that carries relay frames. These may be neighbors of an earlier view.
	direct map[membership.NodeID]bool
	// list has the tables of the newest view, of the adopted one, and of the one before: nodes change views at different
	// times, and need goodbyes of nodes that leave. The first one with a route is used.
	list []*relayTable
	// all returns the routes over the links of all tables that begin with a link of this node. They are used if no table has
	// a route: the destination leaves, so the newest view does not have it, and the relays of the others have left.
	all func() map[membership.NodeID][]membership.NodeID
}

// A relayTable has the routes of a view. It is immutable.
type relayTable struct {
	view   membership.View
	ranks  map[membership.NodeID]int
	routes *topology.Routes
}

// NextHops implements forward.Routes. A link to the destination itself is the first choice, also to a neighbor of an
// earlier view. The only next hop to a node that is in no view is the node itself: it may have a link to this node while it
// joins.
//
// While the links of a new view come up, nodes do not know which links others lack, and a frame may go around in a circle.
// A frame that has made as many hops as there are nodes has been at a node twice. Then all nodes route it by the next older
// view, since the links of that view exist, and after as many hops again by the one before. If relays of that view have left, a path may
// need links of both views, and no table has it. In the end the frame walks at random over the links that exist.
func (r *relayRoutes) NextHops(destination membership.NodeID, made int, hops []membership.NodeID) []membership.NodeID {
	tables, known := r.tables.Load(), false
	if tables == nil {
		return append(hops, destination)
	}
	isDirect := tables.direct[destination]
	if isDirect {
		hops = append(hops, destination)
	}
	if !isDirect && made >= tables.walkFrom() {
		return tables.appendRandom(hops)
	}
	for i := range tables.list {
		t := tables.list[tables.first(made, i)]
		rank, in := t.ranks[destination]
		if in {
			hops = t.appendHops(hops, rank)
		}
		if known = known || in; len(hops) > 0 && (!isDirect || in) {
			break
		}
	}
	if !known && !isDirect {
		hops = append(hops, destination)
	}
	if len(hops) == 0 && tables.all != nil {
		hops = append(hops, tables.all()[destination]...)
	}
	return hops
}

// first returns the index of the i-th table to be used for a frame that has made some hops.
func (t *relayTables) first(made, i int) int { return (made/t.circle() + i) % len(t.list) }

// circle is the number of hops that a frame is routed by one table before the next one: the nodes of the largest view, since nodes that
// are not in the newest one relay as well.
func (t *relayTables) circle() int {
	n := 1
	for _, table := range t.list {
		n = max(n, table.view.Size())
	}
	return min(n, loopMin)
}

// walkFrom returns the number of hops after which a frame walks at random. No path in the oldest view has more hops than half of its
// nodes. In worlds with more than 42 nodes it is above the hop limit.
func (t *relayTables) walkFrom() int {
	if len(t.list) == 0 {
		return hopLimit
	}
	return len(t.list)*t.circle() - (len(t.list)-1)*t.circle()/2
}

// appendRandom appends the nodes with links that carry relay frames, in random order. A relay takes the first one that has not sent it
// the frame.
func (t *relayTables) appendRandom(hops []membership.NodeID) []membership.NodeID {
	hops = slices.AppendSeq(hops, maps.Keys(t.direct))
	rand.Shuffle(len(hops), func(i, j int) { hops[i], hops[j] = hops[j], hops[i] })
	return hops
}

func (t *relayTable) appendHops(hops []membership.NodeID, rank int) []membership.NodeID {
	route := t.routes.To(rank)
	for _, next := range []int{route.Next, route.Alternative} {
		if next != topology.None {
			hops = append(hops, t.view.Nodes[next].ID)
		}
	}
	return hops
}

// reroute computes the routes of the relay again: for a new view, after the end of a node, and when a link to a
// neighbor comes up or ends.
func (m *Mesh) reroute() {
	if m.cfg.Relay == nil {
		return
	}
	newest := m.reach.newest()
	m.mu.Lock()
	var tables []*relayTable
	for _, v := range []membership.View{newest, m.relayViewLocked(), m.before} {
		if _, in := v.Rank(m.cfg.Self); in && (len(tables) == 0 || v.Epoch < tables[len(tables)-1].view.Epoch) {
			tables = append(tables, m.relayTableLocked(v))
		}
	}
	all := &relayTables{list: tables, direct: make(map[membership.NodeID]bool)}
	stopped := make(map[membership.NodeID]bool)
	for slot := range m.peers {
		switch p := &m.peers[slot]; {
		case p.HasStopped():
			stopped[p.node.ID] = true
		case p.relaying:
			all.direct[p.node.ID] = true
		}
	}
	all.all = sync.OnceValue(func() map[membership.NodeID][]membership.NodeID {
		var views []membership.View
		for _, t := range tables {
			views = append(views, t.view)
		}
		return m.reach.routesOverAll(views, all.direct, stopped)
	})
	m.cfg.Relay.routes.tables.Store(all)
	closing := m.closing
	m.mu.Unlock()
	if !closing {
		return
	}
	for _, t := range tables {
		for _, n := range t.view.Nodes {
			if n.ID != m.cfg.Self && len(m.cfg.Relay.routes.NextHops(n.ID, 0, nil)) == 0 { // It cannot read a goodbye.
				m.cfg.Relay.endpoint.NodeGone(n.ID)
			}
		}
	}
}

// relayTableLocked returns the routes in a view without the nodes that forward nothing any more, and without the neighbors whose links cannot
// carry relay frames.
func (m *Mesh) relayTableLocked(v membership.View) *relayTable {
	t := &relayTable{view: v, ranks: make(map[membership.NodeID]int, v.Size())}
	for rank, n := range v.Nodes {
		t.ranks[n.ID] = rank
	}
	var broken topology.Broken
	near := m.reach.neighborsIn(v)
	for slot := range m.peers {
		p := &m.peers[slot]
		switch rank, in := t.ranks[p.node.ID]; {
		case !in || slot == m.self:
		case p.HasStopped():
			broken.Ranks = append(broken.Ranks, rank)
		case near.has(p.node.ID) && !p.relaying:
			broken.Links = append(broken.Links, rank)
		}
	}
	t.routes = m.cfg.Topology.Graph(v.Size()).Routes(t.ranks[m.cfg.Self], broken)
	return t
}

// relayViewLocked returns the adopted view, without the nodes that join together with this one.
func (m *Mesh) relayViewLocked() membership.View {
	v := m.view
	if v.Epoch == m.cfg.View.Epoch {
		v.Nodes = v.Nodes[:min(m.formation.world, len(v.Nodes))]
	}
	return v
}
