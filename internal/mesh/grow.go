package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// addPeerLocked gives a node a slot. Form calls it without the lock.
func (m *Mesh) addPeerLocked(n membership.Node, rank int) (slot int) {
	added := peer{node: n, rank: rank, state: membership.PeerLinked}
	if len(m.free) > 0 {
		slot, m.free = m.free[0], m.free[1:]
		m.peers[slot] = added
		return slot
	}
	m.peers = append(m.peers, added)
	return len(m.peers) - 1
}

// slotOf returns the slot of a node. It is called with the lock held.
func (m *Mesh) slotOf(id membership.NodeID) (slot int, ok bool) {
	if id == (membership.NodeID{}) {
		return 0, false // the ID in free slots
	}
	slot = slices.IndexFunc(m.peers, func(p peer) bool { return p.node.ID == id })
	return max(slot, 0), slot >= 0
}

// peer returns a copy of the content of a slot.
func (m *Mesh) peer(slot int) peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[slot]
}

func (m *Mesh) node(slot int) membership.Node { return m.peer(slot).node }

// Expect accepts connections from nodes that are not in the view but may be in the next
// one. It is no failure if they do not connect or connect again, even if they have been
// linked to this node before.
func (m *Mesh) Expect(nodes []membership.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		slot, known := m.slotOf(n.ID)
		if _, in := m.view.Rank(n.ID); in {
			continue
		}
		if !known {
			slot = m.addPeerLocked(n, -1)
		}
		p := &m.peers[slot]
		p.expected, p.report = true, nil
		p.state, _ = p.state.Next(membership.Expected)
	}
}

// Forget undoes Expect for a node that does not join. Its link ends and its slot is reused, so
// that nodes that never join take no memory. A node that has been in a view keeps its slot.
func (m *Mesh) Forget(id membership.NodeID) {
	m.mu.Lock()
	slot, known := m.slotOf(id)
	if !known || !m.peers[slot].expected || m.peers[slot].rank >= 0 {
		m.mu.Unlock()
		return
	}
	l := m.peers[slot].link
	m.dropLocked(slot, l)
	m.peers[slot] = peer{} // The end of l is no event of any node from now on.
	m.mu.Unlock()
	if l != nil {
		m.engine.Forget(l)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, slot) // The engine knows nothing of the slot any more.
}

// dialJoining links this node to the other joining nodes before it. A node that cannot be
// reached is not let in together with this one, but does not fail Form.
func (m *Mesh) dialJoining(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joiningTimeout)
	defer cancel()
	m.dialAll(ctx, func(slot int) bool { return !m.isRequired(slot) }, func(slot int, err error) {
		m.log.Debug("no link to a node that joins as well", m.note(slot), "err", err)
	}).Wait()
}

// joiningTimeout bounds dialJoining.
const joiningTimeout = 2 * time.Second

// reportLink tells the session with the seed whether the link to an expected node is up.
func (m *Mesh) reportLink(slot int) {
	if m.cfg.Linked == nil {
		return
	}
	m.reporting.Lock()
	defer m.reporting.Unlock()
	if p := m.peer(slot); p.expected {
		m.cfg.Linked(p.node.ID, p.link != nil)
	}
}

// Beside returns the other joining nodes of the first view that this node has links to.
func (m *Mesh) Beside() (ids []membership.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot, p := range m.peers[:m.cfg.View.Size()] {
		if p.link != nil && slot != m.self && !m.isRequired(slot) {
			ids = append(ids, p.node.ID)
		}
	}
	return ids
}

var (
	errRemoved  = fmt.Errorf("%w: it is not in the world any more", transport.ErrPeerGone)
	errUnlinked = fmt.Errorf("%w: it has not connected to this node", transport.ErrPeerGone)
)

// settleDefault is used if neither Config.SettleTimeout nor HeartbeatTimeout is set.
const settleDefault = 5 * time.Second

// adoptTimeout is how long Adopt waits for the links to new nodes. The nodes that watch
// a new node have confirmed their links before it was let in, so that few others wait.
// On a lossy network, the last packet of a handshake may need several attempts.
func (m *Mesh) adoptTimeout() time.Duration {
	return cmp.Or(max(m.cfg.SettleTimeout, 0), max(m.cfg.HeartbeatTimeout, 0), settleDefault)
}

// Adopt continues with the nodes of a later view. It clears doubts about them. New nodes that
// are not linked to this node within SettleTimeout are lost. The links to nodes that are
// neither in the view nor expected end. If ctx ends while Adopt waits for links, it
// returns the cause of ctx and the old view stays.
func (m *Mesh) Adopt(ctx context.Context, v membership.View) error {
	if err := m.settle(ctx, v); err != nil {
		return err
	}
	m.mu.Lock()
	m.view = v
	for rank, n := range v.Nodes {
		slot, ok := m.slotOf(n.ID)
		if !ok {
			slot = m.addPeerLocked(n, rank)
		}
		m.peers[slot].rank, m.peers[slot].expected = rank, false
	}
	peers := slices.Clone(m.peers)
	m.mu.Unlock()
	for slot, p := range peers {
		_, stays := v.Rank(p.node.ID)
		switch {
		case p.node.ID == (membership.NodeID{}), p.expected:
		case !stays:
			m.apply(slot, p.node.ID, membership.AdoptedOut, news{err: errRemoved})
		case m.peer(slot).link == nil:
			m.apply(slot, p.node.ID, membership.AdoptedUnlinked, news{err: errUnlinked})
		default:
			m.apply(slot, p.node.ID, membership.AdoptedIn, news{})
		}
	}
	return nil
}

// settle waits for the links to the nodes of a view that were expected.
func (m *Mesh) settle(ctx context.Context, v membership.View) error {
	timeout := time.NewTimer(m.adoptTimeout())
	defer timeout.Stop()
	for {
		m.mu.Lock()
		grown := m.grown
		complete := !slices.ContainsFunc(m.peers, func(p peer) bool {
			_, in := v.Rank(p.node.ID)
			return in && p.expected && p.link == nil
		})
		m.mu.Unlock()
		if complete {
			return nil
		}
		select {
		case <-grown:
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drop ends the link to a node that is not in the world any more.
func (m *Mesh) drop(slot int, l *link.Link) {
	if l == nil {
		return
	}
	m.mu.Lock()
	m.dropLocked(slot, l)
	m.mu.Unlock()
	m.engine.Forget(l)
}

func (m *Mesh) dropLocked(slot int, l *link.Link) {
	if l == nil {
		return
	}
	p := &m.peers[slot]
	p.link, p.route = nil, nil
	p.noteEnd(l)
	if !m.closing {
		m.wg.Go(l.Abort)
	}
}
