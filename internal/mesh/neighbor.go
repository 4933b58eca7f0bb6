package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
)

// A NotNeighborError says that this node has no connection to a rank, since the topology does not link them.
type NotNeighborError struct {
	Rank     int
	Node     membership.NodeID
	Topology topology.Topology
}

func (e *NotNeighborError) Error() string {
	return fmt.Sprintf("rank %d (%s) is not a neighbor of this node in the topology %v, and there is no relay to it", e.Rank, e.Node, e.Topology)
}

// neighbors is the set of the nodes that this node may connect to without a relay. It is nil in the full
// topology, and has all nodes then.
type neighbors map[membership.NodeID]bool

func (n neighbors) has(id membership.NodeID) bool { return n == nil || n[id] }

// watchGraph returns the graph of watches of the views.
func (m *Mesh) watchGraph() membership.WatchGraph {
	return membership.WatchGraph{Topology: m.cfg.Topology, Count: m.watches()}
}

// neighborsAtForm returns the neighbors in the first view, or the nodes that a joining node links itself to.
func (m *Mesh) neighborsAtForm() neighbors {
	v := m.cfg.View
	if m.cfg.Topology.IsFull() || m.isMember(m.self) {
		return m.reach.neighborsIn(membership.View{Nodes: v.Nodes[:m.world()]})
	}
	near := make(neighbors)
	for _, i := range membership.LinksOfInvited(m.cfg.Topology, m.world(), m.self+1) {
		near[v.Nodes[i].ID] = true
	}
	return near
}

// world returns the number of nodes of the first view that are in the world.
func (m *Mesh) world() int {
	if m.cfg.World == 0 {
		return m.cfg.View.Size()
	}
	return m.cfg.World
}

// logTopology logs the note about the topology with n nodes, if it has one.
func (m *Mesh) logTopology(level slog.Level, n int) {
	if note := m.cfg.Topology.Note(n); note != "" {
		m.log.Log(context.Background(), level, "the topology does not fit the number of nodes", "nodes", n, "topology", note)
	}
}

// isNotNeighbor reports whether a link has ended since there is no way to the peer.
func isNotNeighbor(err error) bool {
	_, is := errors.AsType[*NotNeighborError](err)
	return is
}

// relinkLocked gives a pending link to a peer that is not a neighbor and has no link, or had one that has ended since
// there was no way to the peer.
func (m *Mesh) relinkLocked(slot int) {
	p := &m.peers[slot]
	if m.cfg.Topology.IsFull() || slot == m.self || p.state.IsGone() {
		return
	}
	old := p.link
	if old == nil && m.reach.isNear(p.node.ID) || old != nil && !(old.IsOver() && isNotNeighbor(old.Err())) {
		return
	}
	m.addPendingLocked(slot)
	if old != nil && !m.closing {
		m.wg.Go(func() { m.discard(old) })
	}
}

// Neighbors returns the ranks of a view that this node connects to without relays, in ascending order. The view
// may be a part of the adopted one.
func (m *Mesh) Neighbors(v membership.View) (ranks []int) {
	m.mu.Lock()
	near := m.reach.neighborsIn(m.view)
	m.mu.Unlock()
	for rank, n := range v.Nodes {
		if n.ID != m.cfg.Self && near.has(n.ID) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// routesLocked returns the routes of this node in the adopted view, or nil in the full topology.
func (m *Mesh) routesLocked() *topology.Routes {
	if m.cfg.Topology.IsFull() {
		return nil
	}
	return m.cfg.Topology.Graph(m.view.Size()).Routes(m.peers[m.self].rank, topology.Broken{})
}

// addHops says in the description of the path to a rank of the adopted view how many hops it has, and the first relay.
func (i *PathInfo) addHops(routes *topology.Routes, rank int) {
	if i.Hops = 1; routes == nil {
		return
	}
	if i.Hops = routes.Hops(rank); i.Hops > 1 {
		i.Relay = routes.To(rank).Next
		i.Reason = fmt.Sprintf("not a neighbor: %d hops, the first to rank %d", i.Hops, i.Relay)
	}
}
