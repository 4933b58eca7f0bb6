package mesh

import (
	"time"

	"github.com/nexar-go/nexar/internal/link"
)

// formerTick is the time between two attempts to release the connections to former neighbors.
const formerTick = 250 * time.Millisecond

// DisconnectFormer closes the connections to the nodes that are no neighbors in the adopted view, in a sparse topology with relays:
// to neighbors of an earlier view, or of the view that this node was invited to. No frame is lost: their links
// become pending, and the next frames go over relays. The caller knows that all nodes have adopted the view: a peer that
// still took this node for its neighbor would dial it again. DisconnectFormer does not block. Connections are released when this
// node has connections to all neighbors of the view, unless it adopts another view before.
func (m *Mesh) DisconnectFormer() {
	if m.cfg.Topology.IsFull() || m.cfg.Relay == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch := m.view.Epoch
	if m.closing {
		return
	}
	m.wg.Go(func() {
		tick := time.NewTicker(formerTick)
		defer tick.Stop()
		for {
			links, isDone := m.formerLinks(epoch)
			for _, l := range links {
				l.Disconnect()
			}
			if isDone {
				return
			}
			select {
			case <-tick.C:
			case <-m.run.Done():
				return
			}
		}
	})
}

// formerLinks returns the links with connections to release in the view of an epoch. It returns none until the neighbors
// relay for this node: frames would have no route meanwhile. isDone reports whether no such connection is left, or the view
// or the Mesh has ended.
func (m *Mesh) formerLinks(epoch uint64) (links []*link.Link, isDone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing || m.view.Epoch != epoch {
		return nil, true
	}
	near := m.reach.neighborsIn(m.view)
	links = m.linksLocked(func(p *peer) bool {
		return p.State.IsMember() && !p.State.IsGone() && !near.has(p.node.ID) && p.isLinked() && !p.isRelayed() && !m.reach.isNear(p.node.ID)
	})
	if len(links) > 0 && m.lacksNeighbor.Load() {
		return nil, false
	}
	return links, len(links) == 0
}

// noteNeighborsLocked sets lacksNeighbor.
func (m *Mesh) noteNeighborsLocked() {
	if m.cfg.Topology.IsFull() || m.cfg.Relay == nil {
		return
	}
	near := m.reach.neighborsIn(m.view)
	lacks := func(slot int, p *peer) bool {
		return slot != m.self && near.has(p.node.ID) && !p.relaying && p.State.IsMember() && !p.State.IsGone()
	}
	m.lacksNeighbor.Store(!m.closing && m.findLocked(lacks) >= 0)
}
