package mesh

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
)

// SendView sends a message about views to a node. A pending link connects for it. SendView does
// not block. It reports false if this node has no link to that node.
func (m *Mesh) SendView(to membership.NodeID, message []byte) bool {
	m.mu.Lock()
	var l *link.Link
	if slot, known := m.slots[to]; known && slot != m.self && !m.closing && m.peers[slot].end() == blame.Alive {
		l = m.peers[slot].link
	}
	m.mu.Unlock()
	return l != nil && l.View(message)
}

// peerSentView passes a message of a peer about views on, and ends the link if it is forged or
// malformed.
func (m *Mesh) peerSentView(l *link.Link, message []byte) {
	p := m.peer(l.Peer)
	if p.link != l || m.cfg.HandleView == nil {
		return
	}
	if err := m.cfg.HandleView(p.node.ID, message); err != nil {
		m.log.Error("a node has sent a forged or malformed view", m.note(l.Peer), "err", err)
		l.Fail(fmt.Errorf("mesh: protocol error: rank %d (node %v) has sent a %w", p.rank, p.node.ID, err))
	}
}
