package mesh

import (
	"bytes"
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
	// unansweredMax is the longest time that a proposal of this node without an answer delays one of the peer.
	unansweredMax = 2 * time.Second
	// delayShare is the share of answerTimeout that an earlier proposal may delay one of a peer that dials again, so that both fit into this time.
	delayShare = 4
	// neededMax is the longest time that Close waits for connections of pending links with frames. Over relays it is GoodbyeTimeout.
	neededMax = 2 * time.Second
)

var (
	errNotPending = errors.New("mesh: the link is no longer pending")
	errReplaced   = errors.New("mesh: another connection was made since")
	errFruitless  = errors.New("mesh: the last connections over this path have delivered nothing")
	errUnproposed = errors.New("mesh: the peer has not proposed the connection in time")
)

// addPendingLocked gives a pending link to a peer.
func (m *Mesh) addPendingLocked(slot int) {
	m.peers[slot].link = m.common.NewPending(slot)
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

// connect gives the pending link to a peer, the node id, the connections of a route. If it fails, it closes them. The peer refuses a connection as long as the
// seed has not announced this node to it. If two nodes propose connections to each other at the same time, both use the proposal of the node with the
// larger NodeID. bulk is the path of the second connection, or nil. await waits for that connection on the accepting side.
func (m *Mesh) connect(ctx context.Context, r *route, slot int, id membership.NodeID, bulk *Path, await func(context.Context) (transport.Conn, error)) (err error) {
	var cfg link.Config
	if m.cfg.Relay != nil && !r.path.Relay {
		cfg.Relay = m.attach
	}
	if bulk != nil {
		cfg.BulkOver, cfg.BulkPipes, cfg.Await = bulk.name(), bulk.Pipes, await
	}
	p := m.peer(slot)
	l := p.link
	if l == nil || p.node.ID != id { // The slot belongs to another node by now.
		r.close()
		return errNotPending
	}
	settled := l.Settled() // of this connection: after its end the link has another channel
	ctx, r.giveUp = context.WithCancelCause(ctx)
	defer r.giveUp(nil)
	if r.peer == (membership.NodeID{}) {
		cfg.Bulk = r.second
		if err = m.beginProposal(ctx, r, slot, l); err == nil {
			err = l.Connect(ctx, r.conn, cfg)
		}
	} else {
		err = l.Accept(ctx, r.conn, cfg, func() error {
			settled = l.Settled() // An earlier connection that the peer has lost has ended by now.
			if m.declines(slot, r, bulk) {
				return errFruitless
			}
			if r.unproposed != nil && !r.unproposed.Stop() {
				return errUnproposed
			}
			if err := m.beginProposal(ctx, r, slot, l); err != nil {
				return err
			}
			if !m.acceptor.take(r) {
				return errReplaced
			}
			return nil
		})
	}
	if err == nil {
		select {
		case <-settled: // From now on the route does not change.
		case <-l.Done():
		}
	}
	m.endProposal(r, slot, l, err == nil)
	if err != nil {
		r.close()
		return err
	}
	m.reportLink(slot)
	i := r.info(slot, id)
	m.log.Debug("linked a node", m.note(slot), "transport", i.Transport, "bulk", i.BulkTransport, "reason", i.Reason)
	return nil
}

// beginProposal makes a route the current proposal for a pending link. It waits until there is no other
// one, or it replaces the proposal of this node by that of a peer with a larger NodeID. A proposal of the peer ends an
// earlier one over the same path: the peer makes one at a time. A proposal that stays longer than delayOf ends: its connection may
// have ended on the other side alone.
func (m *Mesh) beginProposal(ctx context.Context, r *route, slot int, l *link.Link) error {
	var delayedBy *route
	var late <-chan time.Time
	for {
		m.mu.Lock()
		p := &m.peers[slot]
		before := p.proposal
		isCurrent, isBroken, changed := p.link == l && l.IsPending(), p.broken != nil, m.changed.Next()
		isCurrent = isCurrent && (!m.closing || r.peer == membership.NodeID{} || l.IsNeeded())
		wins := p.proposal != nil && p.proposal.peer == (membership.NodeID{}) && r.peer == p.node.ID &&
			bytes.Compare(m.cfg.Self[:], p.node.ID[:]) < 0
		if isCurrent && (p.proposal == nil || wins) {
			p.proposal = r
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		if !isCurrent {
			return link.ErrConnected
		}
		if before != delayedBy {
			delayedBy, late = before, nil
			if d := m.delayOf(r, before, isBroken); d > 0 {
				late = time.After(d)
			}
		}
		if r.peer != (membership.NodeID{}) && before.peer == r.peer && before.path == r.path && r.conn.Err() == nil {
			before.conn.Close()
		}
		select {
		case <-changed:
		case <-late:
			late = nil
			before.giveUp(errReplaced) // Its connection may be in use from now on.
		case <-r.conn.Done():
			return cmp.Or(r.conn.Err(), transport.ErrPeerClosed)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// delayOf returns the longest time that an earlier proposal delays a route, or 0 if it delays the route until its end. Proposals over relays have a
// limit, since relays may have died. So do those of this node: if the peer dials, it may have lost the connection of the proposal.
func (m *Mesh) delayOf(r, before *route, isBroken bool) time.Duration {
	isUnanswered := before.peer == (membership.NodeID{}) && r.peer != (membership.NodeID{})
	switch {
	case before.isRelayed() && !r.isRelayed(): // The peer may dial again, although the link of this node has not broken.
		return m.cfg.answerTimeout() / delayShare
	case !isUnanswered || r.isRelayed() && !before.isRelayed():
		return 0
	case isBroken:
		return m.cfg.answerTimeout() / delayShare
	}
	return unansweredMax
}

// endProposal undoes beginProposal. If the link is connected, the route becomes that of the peer.
func (m *Mesh) endProposal(r *route, slot int, l *link.Link, connected bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[slot]
	if p.proposal == r {
		p.proposal = nil
	}
	switch {
	case !connected || p.link != l:
	case l.Conn() == r.conn:
		p.explain(r)
		p.route, p.broken, p.processEnded, p.declined = r, nil, nil, 0
		if r.isRelayed() {
			m.nextLocked(slot, membership.ConnectedOverRelays, 0)
		} else {
			m.nextLocked(slot, membership.Connected, 0)
		}
		if err := p.noteDelivery(r, l.LastDelivery(), m.cfg.HeartbeatTimeout); err != nil {
			l.Fail(err)
		} else if p.fruitless == fruitlessMax && r.bulk != nil {
			l.Disconnect()
		}
	default: // It has broken, and another one may be in use.
		p.noteFailure(r, r.conn.Err())
	}
	m.changed.Send()
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
	m.loop.post(func() func() { return m.peerGoneLocked(l, f) })
}

func (m *Mesh) peerGoneLocked(l *link.Link, f wire.Gone) (effects func()) {
	slot, ok := m.slotOfLocked(f.Node)
	if !ok || slot == m.self || m.peers[l.Peer].link != l && !m.closing {
		return nil
	}
	return m.decideOnLocked(event{slot: slot, id: f.Node, kind: membership.ReportedGone, from: l})
}

// awaitProposal waits after the report that a node has left, or leaves, until no connection is being negotiated with it. If its link has none then,
// no goodbye comes.
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
		if p.node.ID != e.id || !p.isPending() {
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
