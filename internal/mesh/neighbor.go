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
	if m.cfg.Topology.IsFull() || slot == m.self || p.State.IsGone() {
		return
	}
	old := p.link
	if old == nil && m.reach.isNear(p.node.ID) || old != nil && !(old.IsOver() && isNotNeighbor(old.Err())) {
		return
	}
	m.addPendingLocked(slot)
	if old != nil && !m.closing {
		m.discardLater(old)
	}
}
