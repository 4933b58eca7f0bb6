package mesh

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// chosenByPeer is the reason for the path of a link that the peer has dialed.
const chosenByPeer = "chosen by the node that dialed"

// An acceptedKey identifies an accepted connection that has no link yet: a peer has at most one
// on each path.
type acceptedKey struct {
	path *Path
	peer membership.NodeID
}

// accept accepts connections on a path until the Mesh closes, and refuses those that are not acceptable.
func (m *Mesh) accept(p *Path) {
	for {
		c, err := p.Transport.Accept(m.run)
		if err != nil {
			return
		}
		m.noteNewest()
		id, slot, ok := m.acceptable(c)
		switch {
		case !ok && m.mayDial(slot, id):
			m.acceptAgain(&route{path: p, conn: c, peer: id}, slot)
		case ok && !p.Relay && !m.mayConnect(slot, id):
			c.Close() // The views of both nodes differ.
		case !ok:
			m.log.Warn("refused a connection", "path", p.name(), "from", c.RemoteAddr(), "peer", c.Peer())
			m.answer(&route{path: p, conn: c, peer: id}, m.linkTo(id))
		case p.Bulk && !m.reach.carries(p, m.peer(slot).node):
			m.bulk.put(id, c)
			m.wg.Go(func() { m.acceptAlone(&route{path: p, conn: c, peer: id}, slot) })
		default:
			m.startAccepting(&route{path: p, conn: c, peer: id}, slot)
		}
	}
}

// acceptAlone accepts a connection for bulk for all lanes if that of the link broke, and the peer has made no other one within acceptingCheck.
func (m *Mesh) acceptAlone(r *route, slot int) {
	if m.peer(slot).broken == nil {
		return
	}
	select {
	case <-time.After(acceptingCheck):
	case <-m.run.Done():
		return
	}
	if p := m.peer(slot); p.broken != nil && p.isPending() && p.accepting == 0 && m.bulk.remove(r.peer, r.conn) {
		m.startAccepting(r, slot)
	}
}

// relayedProposal is the longest time that a connection through relays waits for the proposal of the peer while the link has another one.
const relayedProposal = 5 * time.Second

// acceptAgain handles a connection of a node that may dial, although its link has a connection or this node leaves: both nodes have dialed at
// the same time, or the peer has lost the connection of the link. The proposal over the new connection says so, and replaces that of the link.
// This node waits for it for half of the answerTimeout, and for relayedProposal through relays.
func (m *Mesh) acceptAgain(r *route, slot int) {
	m.reportRefusal(r)
	if r.path.Bulk && !m.reach.carries(r.path, m.peer(slot).node) {
		m.bulk.put(r.peer, r.conn) // beside a connection that may replace that of the link
		return
	}
	if l := m.peer(slot).link; l == nil || l.IsPending() || l.IsOver() {
		m.answer(r, l)
		return
	}
	r.unproposed = time.AfterFunc(m.proposalTimeout(r), func() { r.conn.Close() })
	m.startAccepting(r, slot)
}

// proposalTimeout returns the longest time that a connection which this node does not need waits for the proposal of the peer.
func (m *Mesh) proposalTimeout(r *route) time.Duration {
	if r.path.Relay {
		return relayedProposal
	}
	return m.cfg.answerTimeout() / 2
}

// linkTo returns the link to a node, or nil.
func (m *Mesh) linkTo(id membership.NodeID) *link.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slot, ok := m.slotOfLocked(id); ok {
		return m.peers[slot].link
	}
	return nil
}

// answer reads the proposal of a connection that this node cannot use, and closes it: see [link.Common.Refuse]. l is the link to the peer, or nil.
func (m *Mesh) answer(r *route, l *link.Link) {
	if l != nil && l.IsPending() && !l.IsOver() {
		r.conn.Close() // The peer will propose another one.
		return
	}
	key := acceptedKey{r.path, r.peer}
	m.accepted.put(key, r.conn)
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(m.run, m.proposalTimeout(r))
		defer cancel()
		m.common.Refuse(ctx, r.conn, l)
		m.accepted.remove(key, r.conn)
		r.conn.Close()
	})
}

// startAccepting makes a link of an accepted connection beside other work.
func (m *Mesh) startAccepting(r *route, slot int) {
	m.accepted.put(acceptedKey{r.path, r.peer}, r.conn) // in the order of acceptance
	m.countAccepting(slot, r.peer, 1)
	m.wg.Go(func() {
		m.acceptLink(r, slot)
		m.countAccepting(slot, r.peer, -1)
	})
}

// reportRefusal tells the seed that this node leaves, if it closes and refuses a direct connection of a peer, of a neighbor that dials again as
// well. No relay has carried its goodbye to a new neighbor, which will report this node as lost: the seed would have to remove one of two living
// nodes. A connection that this node accepted before it closed, and that beginProposal refuses, causes no report: the peer dials again.
func (m *Mesh) reportRefusal(r *route) {
	m.mu.Lock()
	isRefused := m.closing && m.cfg.Relay != nil && !r.path.Relay && !r.path.Bulk
	report := m.reportLeaving
	m.mu.Unlock()
	if isRefused && report != nil {
		m.wg.Go(report)
	}
}

// countAccepting adds n to the number of accepted connections of a node.
func (m *Mesh) countAccepting(slot int, id membership.NodeID, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := &m.peers[slot]; p.node.ID == id {
		p.accepting += n
		m.changed.Send()
	}
}

// acceptable returns the node at the other end of a connection, and its slot. ok reports
// whether it may connect: its link is pending.
func (m *Mesh) acceptable(c transport.Conn) (id membership.NodeID, slot int, ok bool) {
	id, err := membership.ParseNodeID(c.Peer())
	if err != nil {
		return id, 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, ok = m.slotOfLocked(id)
	ok = ok && slot != m.self && m.peers[slot].isSettling() && (!m.closing || m.peers[slot].link.IsNeeded())
	return id, slot, ok
}

// acceptLink makes a link of an accepted connection as soon as the peer begins one. If the peer
// closes the connection before that, it has not failed.
func (m *Mesh) acceptLink(r *route, slot int) {
	defer m.accepted.remove(acceptedKey{r.path, r.peer}, r.conn)
	bulk := m.reach.bulkBeside(r.path, m.peer(slot).node)
	r.why = chosenByPeer
	if r.path.isLocal() {
		r.why = "same host"
	} else if bulk != nil {
		r.why += ", without " + bulk.name()
	}
	err := m.connect(m.run, r, slot, r.peer, bulk, func(ctx context.Context) (transport.Conn, error) {
		r.bulk, r.why = bulk, chosenByPeer
		return m.bulk.take(ctx, r.peer)
	})
	if err != nil {
		m.log.Debug("no link was made of a connection", m.note(slot), "path", r.path.name(), "err", err)
	}
}
