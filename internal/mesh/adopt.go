package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

var (
	errRemoved  = fmt.Errorf("%w: the seed has removed it from the world", transport.ErrPeerGone)
	errOut      = fmt.Errorf("%w: it is no longer in the world", transport.ErrPeerGone) // It has left or was removed.
	errUnlinked = fmt.Errorf("%w: it has not connected to this node", transport.ErrPeerGone)
)

// settleDefault is used if neither Config.SettleTimeout nor HeartbeatTimeout is set.
const settleDefault = 5 * time.Second

// adoptTimeout returns the longest time that Adopt waits for the links to new nodes. Few nodes
// wait at all: those that watch a new node confirm their links to it before it is admitted. But
// on a lossy network, the last packet of a handshake may need several attempts.
func (cfg *Config) adoptTimeout() time.Duration {
	return cmp.Or(max(cfg.SettleTimeout, 0), max(cfg.HeartbeatTimeout, 0), settleDefault)
}

// Remove tells the living peers that are not in a later view that they are removed from the world, by the program of this node if they
// are excluded. It blocks until they have read it, for at most confirmMax. So they know the cause before they learn that this node, or others
// that have adopted the view, have ended their communicators and closed their links. Unless all ranks have quiesced, so that some may have
// left, the communicators with the removed peers end for that reason, on all ranks.
func (m *Mesh) Remove(v membership.View, excluded []membership.NodeID, quiesced bool) {
	stays := make(map[membership.NodeID]bool, v.Size())
	for i := range v.Nodes {
		stays[v.Nodes[i].ID] = true
	}
	removed := make(map[membership.NodeID]*link.Link)
	m.mu.Lock()
	for slot := range m.peers {
		p := &m.peers[slot]
		// A doubted peer has most likely ended. If it lives, it knows that it is doubted.
		if slot != m.self && p.State.IsMember() && !stays[p.node.ID] && p.isLinked() && !p.State.IsGone() && p.State != membership.PeerDoubted {
			removed[p.node.ID] = p.link
		}
	}
	m.mu.Unlock()
	read := make(map[*link.Link]<-chan struct{}, len(removed))
	for id, l := range removed {
		cause := wire.CauseRemoved
		if slices.Contains(excluded, id) {
			cause = wire.CauseExcluded
		}
		m.engine.Remove(l, cause)
		read[l] = l.ConfirmedPing()
	}
	if !quiesced {
		changes := make([]engine.PeerChange, 0, len(removed))
		for _, l := range removed {
			changes = append(changes, engine.PeerChange{Peer: l.Peer, Everywhere: true, Err: errRemoved})
		}
		m.engine.PeerChanged(changes...)
	}
	ctx, cancel := context.WithTimeout(m.run, confirmMax)
	defer cancel()
	awaitConfirmed(ctx, read)
}

// LeaveWorld says that this node will not be in the next view: other nodes close their links to it, which is no failure.
func (m *Mesh) LeaveWorld() {
	m.loop.ask(func() { m.out = true })
}

// Adopt replaces the view by a later one. It blocks until connections of new nodes of v that this node
// has accepted, or dials again, are links, for at most SettleTimeout. Other new nodes get pending links. After that it
// decides on every peer in one pass: doubts about nodes of v are cleared, and links to nodes
// that are neither in v nor expected end. If ctx ends while Adopt waits for links, Adopt returns
// the cause of ctx and keeps the old view. After Close it returns engine.ErrClosed.
func (m *Mesh) Adopt(ctx context.Context, v membership.View) error {
	limited, cancel := context.WithTimeout(ctx, m.cfg.adoptTimeout())
	defer cancel()
	err := m.awaitLinks(limited, func(_ int, p *peer) bool {
		// A node that has closed a connection may have joined again, with other links: the next connection shows it.
		if p.State.IsMember() || !p.isPending() || p.accepting == 0 && !errors.Is(p.broken, transport.ErrPeerClosed) {
			return false
		}
		_, in := v.Rank(p.node.ID)
		return in
	}, nil)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	isOpen := false
	m.loop.perform(func() func() {
		isOpen = true
		return inOrder(m.passLocked(m.adoptLocked(v)), m.reroute)
	})
	if !isOpen {
		return fmt.Errorf("mesh: adopt view %d: %w", v.Epoch, engine.ErrClosed)
	}
	m.monitor.connectNeighbors()
	m.logTopology(slog.LevelInfo, v.Size())
	return nil
}

// adoptLocked makes v the view and decides on every peer.
func (m *Mesh) adoptLocked(v membership.View) (pass []decision) {
	m.before, m.view, m.out = m.view, v, false
	m.monitor.slots, m.monitor.releases = nil, false
	m.reach.setNear(m.reach.neighborsIn(v))
	for rank := range v.Nodes {
		n := &v.Nodes[rank]
		slot, ok := m.slots[n.ID]
		if !ok {
			slot = m.addPeerLocked(n, rank)
		}
		p := &m.peers[slot]
		if p.State == membership.PeerExpected && p.isPending() && errors.Is(p.broken, transport.ErrPeerClosed) { // Without a next connection, it has probably joined again.
			m.dropLinkLocked(slot)
			m.addPendingLocked(slot)
		}
		p.node, p.rank = n, rank
		m.relinkLocked(slot)
		if !m.cfg.OnDemand && p.isPending() && !m.closing {
			p.link.Need(link.Joining)
		}
	}
	for slot := range m.peers {
		p := &m.peers[slot]
		e := event{slot: slot, id: p.node.ID, kind: membership.AdoptedIn}
		switch {
		case p.node.ID == (membership.NodeID{}):
			continue
		case p.rank < 0 || p.rank >= v.Size() || v.Nodes[p.rank].ID != p.node.ID: // Nodes of v have their ranks in v by now.
			if !p.State.IsMember() {
				continue
			}
			e.kind, e.err = membership.AdoptedOut, errOut
			if p.rank >= 0 && p.rank < m.before.Size() && p.node == &m.before.Nodes[p.rank] {
				p.node = new(*p.node) // A view that is no longer adopted takes no memory.
			}
		case p.link == nil:
			e.kind, e.err = membership.AdoptedUnlinked, errUnlinked
		case p.State == membership.PeerLinked && m.cfg.Topology.IsFull(): // Nothing changes. In a sparse topology the engine may doubt it.
			p.report = nil
			continue
		}
		pass = m.decideLocked(pass, e)
	}
	return pass
}
