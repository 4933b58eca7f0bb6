package mesh

import (
	"slices"

	"github.com/nexar-go/nexar/internal/membership"
)

// A formation says which links Form makes and needs. It knows the first view alone, in which the slots are the ranks.
type formation struct {
	view     membership.View
	world    int // the number of nodes that are in the world; those behind them are joining
	self     int
	onDemand bool
	graph    membership.WatchGraph
	reach    *Reach
	// required has the slots that isRequired selects in the full topology with links on demand, in ascending order.
	required []int
}

func newFormation(cfg *Config, self int, graph membership.WatchGraph, reach *Reach) *formation {
	f := &formation{view: cfg.View, world: cfg.World, self: self, onDemand: cfg.OnDemand, graph: graph, reach: reach}
	if f.world == 0 {
		f.world = f.view.Size()
	}
	switch {
	case !graph.Topology.IsFull():
	case f.isMember(self):
		f.required = graph.Ranks(f.members(), self)
		slices.Sort(f.required)
	default:
		f.required = membership.NewcomerLinks(f.world, graph.Count)
	}
	return f
}

// members returns the view without the joining nodes.
func (f *formation) members() membership.View { return membership.View{Nodes: f.view.Nodes[:f.world]} }

// isMember reports whether a slot belongs to a node of the world.
func (f *formation) isMember(slot int) bool { return slot < f.world }

// neighbors returns the neighbors of this node, or the nodes that it links itself to while it joins.
func (f *formation) neighbors() neighbors {
	if f.graph.Topology.IsFull() || f.isMember(f.self) {
		return f.reach.neighborsIn(f.members())
	}
	near := make(neighbors)
	for _, i := range membership.LinksOfInvited(f.graph.Topology, f.world, f.self+1) {
		near[f.view.Nodes[i].ID] = true
	}
	return near
}

// isRequired reports whether Form fails without a link to a slot: one of the two
// nodes watches the other one, or may do so when this node, which joins a formed world, has entered it. In a
// sparse topology that is a neighbor. Without Config.OnDemand a joining node needs links to the whole world.
func (f *formation) isRequired(slot int) bool {
	switch {
	case !f.isMember(slot):
		return false
	case slot == f.self:
		return true
	case !f.graph.Topology.IsFull():
		return f.reach.isNear(f.view.Nodes[slot].ID)
	case !f.isMember(f.self) && !f.onDemand:
		return true
	}
	_, ok := slices.BinarySearch(f.required, slot)
	return ok
}

// isDialed reports whether Form dials a slot before this node.
func (f *formation) isDialed(slot int) bool {
	return f.isRequired(slot) || !f.onDemand && f.isMember(slot)
}

// needs reports whether Form makes or needs the link to a slot.
func (f *formation) needs(slot int) bool {
	return slot != f.self && (f.isRequired(slot) || slot < f.self && f.isDialed(slot))
}

// isMissing reports whether Form waits for the link to a peer.
func (f *formation) isMissing(slot int, p *peer) bool {
	isLinked := p.isLinked() && p.route != nil // The route follows the connection.
	return !isLinked && f.needs(slot)
}

// isLost reports whether a link that Form has made has ended. If its connection broke, it is dialed again. A peer that knows that the world has
// formed may leave before this node knows.
func (f *formation) isLost(slot int, p *peer) bool {
	return f.needs(slot) && p.State != membership.PeerLeft && (p.link == nil || p.link.IsOver())
}
