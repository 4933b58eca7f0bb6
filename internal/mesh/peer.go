package mesh

import (
	"log/slog"
	"strings"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
)

// A peer is the content of a slot. Mesh.mu guards it. A node of a large world has one for each other node, so it is small.
type peer struct {
	node  *membership.Node // of the adopted view, if it is in that; not nil
	rank  int              // the latest; -1 before the first view with the node
	link  *link.Link       // nil if the node is no longer in the world
	route *route           // of link

	membership.Peer
	negotiation
	relaying bool // the relay uses the link

	broken error         // why the last connection of the pending link ended; nil if it has not, or is replaced
	report error         // the first report of another node since the peer was linked
	reason *blame.Reason // the last error that the peer has told, or nil
	loss   *LossError    // the last loss of the peer, or nil

	// processEnded reports whether the process of the peer has ended. It is nil until link
	// has ended.
	processEnded func() bool
}

// unreachable returns the error for a peer without a link.
func (p *peer) unreachable(err error) *UnreachableError {
	return &UnreachableError{Rank: p.rank, Node: p.node.ID, Addrs: p.node.Addrs, Err: err}
}

// noteEndLocked sets processEnded of the peer of a link. The peer may have attached the memory of this node without a
// connection.
func (m *Mesh) noteEndLocked(l *link.Link) {
	p := &m.peers[l.Peer]
	if p.processEnded != nil {
		return
	}
	if s := l.MemorySharer(); s != nil {
		p.processEnded = s.PeerEnded()
	} else if s := m.reach.HostMemory(membership.View{Nodes: []membership.Node{*p.node}}); s != nil {
		p.processEnded = s.PeerEnded(p.node.ID.String())
	}
}

// hasLeft is peer.processEnded after a goodbye.
func hasLeft() bool { return true }

// addPeerLocked gives a node a slot. The node must not change.
func (m *Mesh) addPeerLocked(n *membership.Node, rank int) (slot int) {
	if len(m.free) == 0 {
		slot = len(m.peers)
		m.peers = append(m.peers, peer{node: n, rank: rank})
	} else {
		slot, m.free = m.free[0], m.free[1:]
		m.peers[slot] = peer{node: n, rank: rank}
	}
	m.slots[n.ID] = slot
	m.addPendingLocked(slot)
	return slot
}

// peer returns a copy of the content of a slot.
func (m *Mesh) peer(slot int) peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[slot]
}

// linksLocked returns the links of the other nodes that are selected.
func (m *Mesh) linksLocked(selects func(p *peer) bool) (links []*link.Link) {
	for slot := range m.peers {
		if p := &m.peers[slot]; slot != m.self && p.link != nil && selects(p) {
			links = append(links, p.link)
		}
	}
	return links
}

// Expect makes the mesh accept connections from nodes that are not in the view but may be in the
// next one. They do not count as failed if they never connect, connect again, or lose their
// link to this node.
func (m *Mesh) Expect(nodes []membership.Node) {
	m.loop.ask(func() {
		for _, n := range nodes {
			if _, in := m.view.Rank(n.ID); in {
				continue
			}
			slot, known := m.slots[n.ID]
			if !known {
				slot = m.addPeerLocked(&n, -1)
			}
			p := &m.peers[slot]
			if p.link == nil || p.State.IsGone() { // It joins again.
				m.dropLinkLocked(slot)
				m.addPendingLocked(slot)
			}
			p.report = nil
			p.Peer, _ = p.Next(membership.Expected, 0)
		}
	})
}

// Forget undoes Expect for a node that does not join: it ends the link to the node and frees its
// slot, so that nodes that never join take no memory. It ignores a node that has been in a view.
func (m *Mesh) Forget(id membership.NodeID) {
	m.loop.ask(func() {
		slot, known := m.slots[id]
		if !known || m.peers[slot].State.IsMember() || m.peers[slot].rank >= 0 {
			return
		}
		l := m.peers[slot].link
		m.peers[slot].link = nil
		m.proposals.nextLocked(slot)
		m.peers[slot] = peer{node: new(membership.Node)} // From now on the end of l is ignored.
		delete(m.slots, id)
		switch {
		case l == nil, !l.IsUsed():
			m.free = append(m.free, slot)
		case !m.closing:
			m.loop.effects.put(func() {
				m.wg.Go(func() {
					m.discard(l)
					m.loop.ask(func() { m.free = append(m.free, slot) }) // No frame refers to the slot now.
				})
			})
		}
	})
}

// dropLinkLocked removes the link of a peer that is no longer in the world from its slot and
// ends it.
func (m *Mesh) dropLinkLocked(slot int) {
	if l := m.takeLinkLocked(slot); l != nil {
		m.discardLater(l)
	}
}

// takeLinkLocked removes the link of a peer that is no longer in the world from its slot. The caller ends it. It returns nil if there is none, or
// if the end of the mesh ends it.
func (m *Mesh) takeLinkLocked(slot int) *link.Link {
	p := &m.peers[slot]
	l := p.link
	if l == nil {
		return nil
	}
	p.link, p.route, p.relaying = nil, nil, false
	m.proposals.nextLocked(slot)
	m.noteEndLocked(l)
	if m.closing {
		return nil
	}
	return l
}

// discardLater ends a link outside slots, after the effects of the decisions before.
func (m *Mesh) discardLater(l *link.Link) {
	m.loop.effects.put(func() { m.wg.Go(func() { m.discard(l) }) })
}

// reportLink reports to the session with the seed whether the link to an expected node is up.
func (m *Mesh) reportLink(slot int) {
	m.loop.post(func() func() {
		p := &m.peers[slot]
		if p.State.IsMember() || m.cfg.Linked == nil {
			return nil
		}
		id, up := p.node.ID, p.isLinked()
		return func() { m.cfg.Linked(id, up) }
	})
}

// note describes the node of a slot in a log line.
func (m *Mesh) note(slot int) slog.Attr {
	p := m.peer(slot)
	return describe(p.rank, *p.node)
}

func describe(rank int, n membership.Node) slog.Attr {
	return slog.Group("node", "rank", rank, "id", n.ID.String(), "addr", list(n.Addrs))
}

func list(addrs []string) string {
	if len(addrs) == 0 {
		return "no address"
	}
	return strings.Join(addrs, ", ")
}
