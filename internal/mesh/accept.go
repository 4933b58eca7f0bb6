package mesh

import (
	"context"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// An acceptedKey identifies an accepted connection that has no link yet: a peer has at most one
// on each path.
type acceptedKey struct {
	path *Path
	slot int
}

// accept accepts the connections of the nodes behind this one on a path.
func (m *Mesh) accept(p *Path) {
	for {
		c, err := p.Transport.Accept(m.run)
		if err != nil {
			return
		}
		id, slot, ok := m.acceptable(c)
		switch {
		case !ok:
			m.log.Warn("refused a connection", "path", p.name(), "from", c.RemoteAddr(), "peer", c.Peer())
			c.Close()
		case p.Bulk && !m.carries(p, m.node(slot)):
			m.bulk.put(id, c)
		default:
			m.accepted.put(acceptedKey{p, slot}, c) // in order of arrival
			m.wg.Go(func() { m.acceptLink(&route{path: p, conn: c, peer: id}, slot) })
		}
	}
}

// acceptable returns the node at the other end of a connection. ok says that it may connect: it
// is behind this node in the first view, or expected.
func (m *Mesh) acceptable(c transport.Conn) (id membership.NodeID, slot int, ok bool) {
	id, err := membership.ParseNodeID(c.Peer())
	if err != nil {
		return id, 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, ok = m.slotOfLocked(id)
	return id, slot, ok && !m.closing && (m.peers[slot].expected || slot > m.self && !m.formed)
}

// acceptLink makes a link of an accepted connection as soon as the peer begins one. A
// connection that the peer closes before is no loss.
func (m *Mesh) acceptLink(r *route, slot int) {
	defer m.accepted.remove(acceptedKey{r.path, slot}, r.conn)
	bulk := m.bulkBeside(r.path, m.node(slot))
	r.why = "its choice"
	if r.path.isLocal() {
		r.why = "same host"
	} else if bulk != nil {
		r.why += ", without " + bulk.name()
	}
	err := m.establish(m.run, r, slot, bulk, func(ctx context.Context) (transport.Conn, error) {
		r.bulk, r.why = bulk, "its choice"
		return m.bulk.take(ctx, r.peer)
	})
	if err != nil {
		m.log.Debug("no link was made of a connection", m.note(slot), "path", r.path.name(), "err", err)
	}
}
