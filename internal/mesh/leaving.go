package mesh

import (
	"context"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// relayQuiet is the time without a frame of others after which a closing node stops to relay, if the others need it no more:
// frames in flight are not sent again.
const relayQuiet = 100 * time.Millisecond

// announceDelivered tells the neighbors that this node leaves and that its peers have read all of its data.
func (m *Mesh) announceDelivered() {
	m.loop.perform(func() func() {
		others := m.relayingLocked(nil)
		return func() {
			for _, l := range others {
				l.Leaving(wire.Leaving{Node: m.cfg.Self})
			}
		}
	})
}

// relayingLocked returns the links that the relay uses, except one.
func (m *Mesh) relayingLocked(except *link.Link) []*link.Link {
	return m.linksLocked(func(p *peer) bool { return p.relaying && p.link != except })
}

// peerLeaving handles the report that a node leaves and only relays from now on, and passes it on. This node will get no frame of it, so
// an operation that waits for one ends. A link that has a connection gets the goodbye of the node instead.
func (m *Mesh) peerLeaving(l *link.Link, f wire.Leaving) {
	m.loop.perform(func() (effects func()) {
		slot, ok := m.slots[f.Node]
		if m.cfg.Relay == nil || !ok || slot == m.self || m.peers[l.Peer].link != l {
			return nil
		}
		before := m.peers[slot].Departure
		effects = m.decideOnLocked(event{slot: slot, id: f.Node, kind: membership.ReportedLeaving, from: l})
		if m.peers[slot].Departure != before {
			m.monitor.hurryLocked() // The seed makes a view without the node.
		}
		return effects
	})
}

// relayForOthers relays frames of others until they reach each other without this node. It ends earlier if nothing was relayed for
// HeartbeatTimeout, or if ctx ends.
func (m *Mesh) relayForOthers(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.wg.Go(func() {
		m.cfg.Relay.endpoint.AwaitQuiet(ctx, m.GoodbyeTimeout()/2)
		cancel()
	})
	m.mu.Lock()
	v := m.relayViewLocked()
	m.mu.Unlock()
	n, isNeeded := 0, true
	m.awaitOthers(ctx, func() bool { n, isNeeded = m.othersLocked(v); return !isNeeded })
	for !isNeeded && n > 1 && ctx.Err() == nil {
		// Frames may be in flight, and reports that other nodes leave as well.
		quiet, stop := context.WithCancel(ctx)
		m.wg.Go(func() {
			m.cfg.Relay.endpoint.AwaitQuiet(quiet, relayQuiet)
			stop()
		})
		m.awaitOthers(quiet, func() bool { n, isNeeded = m.othersLocked(v); return n < 2 || isNeeded })
		isQuiet := quiet.Err() != nil
		stop()
		if isQuiet && !isNeeded {
			return
		}
		m.awaitOthers(ctx, func() bool { n, isNeeded = m.othersLocked(v); return !isNeeded })
	}
}

// awaitOthers waits until a condition on the other nodes of a view holds, or ctx ends. It checks the condition after changes, but
// not after each one in a large world.
func (m *Mesh) awaitOthers(ctx context.Context, isTrue func() bool) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		m.mu.Lock()
		ok, changed, n := isTrue(), m.changed.Next(), len(m.peers)
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		pause.Reset(time.Duration(n) * othersPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// othersPause is the time between two checks of the other nodes for each node of the world.
const othersPause = 10 * time.Microsecond

// othersLocked returns the number of other nodes that may still send or wait for data, and whether some of them may reach each
// other only over nodes that leave, like this one. v is the adopted view, whose links are up. Nodes that this node cannot reach count
// as well: the others may have links of later views.
func (m *Mesh) othersLocked(v membership.View) (n int, needLeaving bool) {
	isGone := func(id membership.NodeID) bool {
		slot, known := m.slots[id]
		return known && m.peers[slot].HasStopped()
	}
	isLeaving := func(id membership.NodeID) bool {
		slot, known := m.slots[id]
		return known && (slot == m.self || m.peers[slot].Departure != membership.Stays)
	}
	var others []membership.NodeID
	for _, node := range v.Nodes {
		if !isGone(node.ID) && !isLeaving(node.ID) {
			others = append(others, node.ID)
		}
	}
	if len(others) < 2 {
		return len(others), false
	}
	direct := m.reach.reachedBy([]membership.View{v}, others[0], func(id membership.NodeID) bool { return isGone(id) || isLeaving(id) })
	return len(others), slices.ContainsFunc(others, func(id membership.NodeID) bool { return !direct[id] })
}

// reachedBy returns the nodes that a node reaches over links between neighbors in one of the views without passing some nodes.
func (r *Reach) reachedBy(views []membership.View, from membership.NodeID, without func(membership.NodeID) bool) map[membership.NodeID]bool {
	near, reached := r.neighborsInAny(views), map[membership.NodeID]bool{from: true}
	for queue := []membership.NodeID{from}; len(queue) > 0; queue = queue[1:] {
		for _, id := range near(queue[0]) {
			if !reached[id] && !without(id) {
				reached[id] = true
				queue = append(queue, id)
			}
		}
	}
	return reached
}
