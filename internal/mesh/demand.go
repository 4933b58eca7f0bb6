package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

const (
	// demandHeartbeats is the number of heartbeat timeouts after which a peer that cannot be dialed
	// on demand counts as lost, up to dialTimeout. A loaded host delays handshakes more than answers
	// to heartbeats. A peer counts as lost one heartbeat timeout after its link broke: operations that need it wait meanwhile.
	demandHeartbeats = 3
	// dialWaitsMax is the longest time of a dial on demand, with its waits for other dials, as a multiple of its timeout.
	dialWaitsMax = 4
	// acceptingCheck is the time between two checks whether the connection of a peer is still being accepted.
	acceptingCheck = 100 * time.Millisecond
	// lateAfter is the time after which LinkHost dials nodes that have not dialed this node.
	lateAfter = 2 * time.Second
	// goneMax is the longest time that a proposal to a node that has left may take.
	goneMax = 5 * time.Second
	// neededMax is the longest time that Close waits for connections of pending links with frames. Over relays it is GoodbyeTimeout.
	neededMax = 2 * time.Second
)

// addPendingLocked gives a pending link to a peer.
func (m *Mesh) addPendingLocked(slot int) {
	p := &m.peers[slot]
	p.link, p.Conn, p.broken = m.common.NewPending(slot), membership.Unconnected, nil
	m.proposals.nextLocked(slot)
}

// isLinked reports whether the link to the peer has, or had, a connection.
func (p *peer) isLinked() bool { return p.link != nil && !p.link.IsPending() }

// isSettling reports whether the link to the peer may still get a connection, or the second of two.
func (p *peer) isSettling() bool {
	if p.link == nil {
		return false
	}
	select {
	case <-p.link.Settled():
		return false
	case <-p.link.Done():
		return false
	default:
		return true
	}
}

func (p *peer) isPending() bool { return p.link != nil && p.link.IsPending() }

// linkNeeded dials the peer of a pending link.
func (m *Mesh) linkNeeded(l *link.Link) {
	m.loop.post(func() func() {
		if m.run.Err() == nil && m.peers[l.Peer].link == l {
			limit := m.demandLimitLocked()
			m.wg.Go(func() { m.dialOnDemand(l.Peer, limit) })
		}
		return nil
	})
}

// demandLimitLocked returns the limit of the dials on demand in the adopted view.
func (m *Mesh) demandLimitLocked() *dialLimit {
	if m.onDemand == nil || m.onDemandIn != m.view.Epoch {
		m.onDemand, m.onDemandIn = newDialLimit(demandDialsMax, m.view, m.reach.host, runtime.NumCPU(), m.cfg.Paths), m.view.Epoch
	}
	return m.onDemand
}

// dialOnDemand dials a peer until its link has a connection, from this node or from the peer. If
// the peer cannot be reached for some time, its link fails with a reason that names its addresses.
func (m *Mesh) dialOnDemand(slot int, limit *dialLimit) {
	p := m.peer(slot)
	l, timeout := p.link, m.cfg.demandTimeout(demandHeartbeats)
	if l == nil {
		return
	}
	timeout = limit.patience(timeout)
	most, queue := dialWaitsMax*timeout, limit
	isBrief := p.broken != nil && m.reach.isNear(p.node.ID)
	if isBrief {
		limit, timeout = nil, m.cfg.demandTimeout(1)
		most = timeout
	}
	ctx, cancel := within(m.run, most)
	defer cancel()
	m.wg.Go(func() {
		defer cancel()
		select {
		case <-l.Settled():
		case <-l.Done():
		case <-ctx.Done():
		}
	})
	if l.Connections() > 0 && (m.reach.isNear(p.node.ID) || p.Conn == membership.DirectBroke) {
		// A neighbor of an earlier view is dialed over relays, but its process may have ended.
		brief, stop := context.WithTimeout(ctx, m.cfg.answerTimeout())
		refusal := m.dialer.refusal(brief, p.node)
		stop()
		if refusal != nil {
			failure := cmp.Or(p.broken, fmt.Errorf("%w: %w", transport.ErrPeerGone, refusal))
			if errors.Is(refusal, transport.ErrIdentity) { // such as an expired certificate
				failure = fmt.Errorf("%w, and dialing it again failed: %w", failure, refusal)
			}
			l.FailPending(failure)
			return
		}
	}
	if limit != nil && l.Purpose() == link.Watching {
		limit.delayWatch(ctx, l)
	}
	if limit != nil && isMutual(l.Purpose()) {
		m.dialer.letPeerDial(ctx, p.node.ID, l, limit, func() int { return m.peer(slot).accepting })
	}
	err := m.dial(ctx, slot, limit, timeout)
	if err == nil || m.run.Err() != nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	if isBrief && !m.reach.isNear(p.node.ID) && m.reach.hasRelay() && m.peer(slot).link == l { // Relays have had too little time.
		m.dialOnDemand(slot, queue)
		return
	}
	var failure error
	u, isUnreachable := errors.AsType[*UnreachableError](err)
	if isUnreachable {
		err = u.Reason()
	}
	switch {
	case isUnreachable && isNotNeighbor(u.Err):
		failure = u.Err
	case p.broken != nil:
		failure = fmt.Errorf("%w, and dialing it again failed: %w", p.broken, err)
	default:
		failure = fmt.Errorf("%w: no connection %w", transport.ErrPeerGone, err)
	}
	if l.FailPending(failure) {
		m.log.Debug("no link on demand", m.note(slot), "err", err)
	}
}

// awaitNeeded waits until the links with frames that wait for a connection have one, or ctx ends. It does not wait for a peer that
// has probably died, and gets no goodbye.
func (m *Mesh) awaitNeeded(ctx context.Context) {
	m.mu.Lock()
	links := m.linksLocked(func(p *peer) bool {
		return !p.State.IsGone() && !p.HasStopped() && p.link.IsPending() && p.link.IsNeeded()
	})
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(neededMax, m.GoodbyeTimeout()))
	defer cancel()
	for _, l := range links {
		waiting, stop := context.WithCancel(ctx)
		m.wg.Go(func() {
			_ = m.awaitLinks(waiting, func(slot int, p *peer) bool { return slot == l.Peer && p.link == l && !p.HasStopped() }, nil)
			stop()
		})
		l.AwaitNeeded(waiting)
		stop()
	}
	// The peer of a connection that is being negotiated expects a goodbye over it. At the end of the proposal the link has its route.
	_ = m.awaitLinks(ctx, func(_ int, p *peer) bool { return p.proposal != nil && !p.HasStopped() }, nil)
}

// peerGone handles the report of a peer that another node has left. If this node has a link to that
// node, the goodbye arrives there, after everything else that the node has sent. The node may have
// accepted a proposal of this node that still waits for the answer: then the proposal decides.
func (m *Mesh) peerGone(l *link.Link, f wire.Gone) {
	m.loop.perform(func() (effects func()) {
		slot, ok := m.slots[f.Node]
		if !ok || slot == m.self || m.peers[l.Peer].link != l && !m.closing {
			return nil
		}
		return m.decideOnLocked(event{slot: slot, id: f.Node, kind: membership.ReportedGone, from: l})
	})
}

// awaitProposal waits after the report that a node has left, or leaves, until no connection is being negotiated with it. If its link has none then,
// no goodbye comes, and if this node leaves as well, no answer to its own.
func (m *Mesh) awaitProposal(e event) {
	ctx, cancel := context.WithTimeout(m.run, goneMax)
	defer cancel()
	_ = m.awaitLinks(ctx, func(slot int, p *peer) bool { return slot == e.slot && p.isPending() && p.proposal != nil }, nil)
	kind := membership.NoGoodbye
	if e.kind == membership.ReportedLeaving {
		kind = membership.NoGoodbyeYet
	}
	var gone *link.Link
	m.loop.perform(func() func() {
		p := &m.peers[e.slot]
		if p.node.ID != e.id || !p.isPending() && !p.AwaitsAnswer() {
			return nil
		}
		gone = p.link
		m.noteEndLocked(gone)
		e.kind = kind
		return m.decideOnLocked(e)
	})
	if gone != nil {
		gone.Abort()
	}
}
