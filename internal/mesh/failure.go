package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// lossEvent is the event of a link that has ended without a goodbye. A connection that the
// peer has closed shows that the peer lives and takes this node for failed, or that its
// goodbye was lost. One that was closed on this side, as when its transport is closed,
// says nothing about the peer.
func lossEvent(err error) membership.PeerEvent {
	if errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed) {
		return membership.LinkClosed
	}
	return membership.LinkLost
}

// linkEnded handles the end of a link: a goodbye, or a loss for the reason err. It ignores
// links that are in no slot. A loss before the peer is in a view, or before the world has
// formed, is no failure: the link is forgotten and made again.
func (m *Mesh) linkEnded(l *link.Link, e membership.PeerEvent, err error) {
	m.mu.Lock()
	p := &m.peers[l.Peer]
	inUse, goodbye := p.link == l || m.loop == l, e == membership.Goodbye
	forget := inUse && !goodbye && (!m.formed || p.expected)
	if inUse && goodbye && l.Peer != m.self {
		p.ended = hasLeft
	} else if inUse && !goodbye {
		p.noteEnd(l)
	}
	if forget && p.link == l {
		m.forgetLinkLocked(l.Peer)
	}
	missed := forget && m.formed && l.Peer < m.self // The peer joins, as this node does or did.
	id := p.node.ID
	m.mu.Unlock()
	switch {
	case !inUse:
	case forget:
		m.engine.Forget(l)
		m.reportLink(l.Peer)
		if missed && m.cfg.Lost != nil {
			m.cfg.Lost(id, err) // Unless they are linked again, one of them cannot be let in.
		}
	case goodbye && l.Peer == m.self:
		m.engine.PeerChanged(engine.PeerChange{Peer: l.Peer, Link: l, LinkEnded: true})
	default:
		m.apply(l.Peer, id, e, news{err: err, from: l})
	}
}

// forgetLinkLocked removes a lost link from its slot and has a required one made again.
func (m *Mesh) forgetLinkLocked(slot int) {
	p := &m.peers[slot]
	p.link, p.route = nil, nil
	if p.expected || !m.isRequired(slot) {
		return // The peer dials again, or does not join.
	}
	m.missing++
	if slot < m.self && !m.closing {
		m.redial(slot)
	}
}

// Gone returns the slots of the nodes that no longer use memory that they have shared with
// this node: their processes have ended, or had finished everything before they left. The loss
// of a link alone does not show that: the process may have been stopped.
func (m *Mesh) Gone() (slots []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot := range m.peers {
		if p := &m.peers[slot]; p.ended != nil && p.ended() {
			p.ended = hasLeft // It need not be asked again.
			slots = append(slots, slot)
		}
	}
	return slots
}

// noteEnd notes how to find out whether the process of a peer has ended. It is called with
// Mesh.mu held.
func (p *peer) noteEnd(l *link.Link) {
	if s := l.MemorySharer(); s != nil && p.ended == nil {
		p.ended = s.PeerEnded()
	}
}

// hasLeft is peer.ended of a node that has said goodbye.
func hasLeft() bool { return true }

// peerReported handles the report of a peer that a node has lost its link to another node.
func (m *Mesh) peerReported(l *link.Link, f wire.Failed, text string) {
	m.mu.Lock()
	slot, ok := m.slotOf(membership.NodeID(f.Node))
	by, known := m.slotOf(membership.NodeID(f.By))
	if !known {
		by, f.By = l.Peer, m.peers[l.Peer].node.ID
	}
	if !ok || by == m.self || m.peers[l.Peer].expected || m.peers[slot].expected {
		m.mu.Unlock()
		return // The node or the reporter is not in the view.
	}
	report := membership.PeerReport{Epoch: f.Epoch, Closed: f.Closed, Self: slot == m.self}
	event := report.Event(m.view.Epoch)
	err := &reportedError{by: m.peers[by].rank, text: text, lostBy: -1}
	switch {
	case report.Self:
		slot, err.doubting, err.lostBy = l.Peer, true, by
	case m.peers[slot].state == membership.PeerLeft:
		err.left = true
	}
	id := m.peers[slot].node.ID
	m.mu.Unlock()
	m.apply(slot, id, event, news{err: err, from: l, report: f})
}

// A reportedError is the reason of a failure that another node has noticed.
type reportedError struct {
	by       int // the rank that has lost its link, not the rank that relays the report
	text     string
	left     bool // the failed node has said goodbye to this node
	doubting bool // this node is reported lost, and the peer has ended its communicators
	lostBy   int  // if doubting: the slot of the node that has lost this node; else -1
}

func (e *reportedError) Error() string {
	switch {
	case e.left:
		return fmt.Sprintf("%s (as rank %d reports, which its goodbye has not reached)", e.text, e.by)
	case e.doubting:
		return fmt.Sprintf("it takes this node for failed: %s (as rank %d reports)", e.text, e.by)
	}
	return fmt.Sprintf("%s (as rank %d reports)", e.text, e.by)
}

func (e *reportedError) Unwrap() error { return transport.ErrPeerGone }

// Blames implements [engine.Blamer]. The node to name is not the peer that doubts this node
// but the node that has lost it.
func (e *reportedError) Blames() int { return e.lostBy }

// reason returns the text of an error for reports to other nodes.
func reason(err error) string {
	if r, ok := errors.AsType[*reportedError](err); ok {
		return r.text
	}
	return err.Error()
}

// news are the details of an event.
type news struct {
	err    error       // the reason of a failure; nil if the peer left or stays
	from   *link.Link  // the link that has ended or has delivered the report, or nil
	report wire.Failed // the report of another node
}

// apply changes the state of the peer id in a slot and carries out the effects. It ignores
// the event if the slot has been given to another node since the caller looked. An event
// that arrives meanwhile waits until all effects have been carried out.
//
// The order of the effects is that of their declaration in package membership. The seed
// hears of a failure first, so that the next view comes soon; then the log and the
// program. The other nodes are told before operations of this node end: a program
// may close its node as soon as a call has failed, and its goodbye must not
// arrive before the reason for it, or this node would be taken for the reason. Links are
// closed last, when nothing uses them any more. Nothing here blocks.
func (m *Mesh) apply(slot int, id membership.NodeID, e membership.PeerEvent, n news) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	p := &m.peers[slot]
	if p.node.ID != id {
		m.mu.Unlock()
		return
	}
	var effects membership.PeerEffects
	p.state, effects = p.state.Next(e)
	node, rank, l := p.node, p.rank, p.link
	if n.report.Node != node.ID { // This node reports it.
		n.report = wire.Failed{Node: node.ID, By: m.cfg.Self, Epoch: m.view.Epoch}
	}
	n.report.Closed = effects.Has(membership.TellClosed)
	switch e {
	case membership.ReportedLost, membership.ReportedClosed, membership.DoubtsSelf:
		p.report = cmp.Or(p.report, n.err)
	case membership.Goodbye:
		if r, ok := p.report.(*reportedError); ok {
			n.err = &reportedError{by: r.by, text: r.text, left: true, lostBy: -1}
		}
	case membership.AdoptedIn, membership.AdoptedOut, membership.AdoptedUnlinked:
		p.report = nil
	}
	var others []*link.Link
	if effects&(membership.TellLost|membership.TellClosed) != 0 {
		others = m.othersLocked(slot, n.from)
	}
	m.mu.Unlock()
	m.notify(rank, node, effects, n.err)
	for _, other := range others {
		other.Failed(n.report, reason(n.err))
	}
	if effects.Has(membership.TellPeer) && l != nil {
		l.Failed(n.report, reason(n.err))
	}
	m.end(slot, l, e, effects, n.err)
	if effects.Has(membership.DropLink) {
		m.drop(slot, l)
	}
}

// notify tells the session with the seed, the log and the program.
func (m *Mesh) notify(rank int, n membership.Node, effects membership.PeerEffects, err error) {
	if effects.Has(membership.ReportLost) && m.cfg.Lost != nil {
		m.cfg.Lost(n.ID, err)
	}
	if effects.Has(membership.ReportLeft) && m.cfg.Left != nil {
		m.cfg.Left(n.ID)
	}
	if effects.Has(membership.NotifyLeft) {
		m.log.Info("a node has left", describe(rank, n))
	}
	if effects.Has(membership.NotifyRemoved) {
		m.log.Info("a node is not in the world any more", describe(rank, n))
	}
	switch {
	case effects.Has(membership.NotifyFailed):
		m.log.Error("a node has failed", describe(rank, n), "reason", err)
	case effects.Has(membership.NotifyLost):
		m.log.Warn("a node that has left counts as failed", describe(rank, n), "reason", err)
	default:
		return
	}
	if m.cfg.Failed != nil {
		m.cfg.Failed(rank, n, err)
	}
}

// othersLocked returns the links to all nodes except this one, the given slot, and the
// sender of the news.
func (m *Mesh) othersLocked(slot int, from *link.Link) (links []*link.Link) {
	for other, p := range m.peers {
		if p.link != nil && other != slot && other != m.self && p.link != from {
			links = append(links, p.link)
		}
	}
	return links
}

// end tells the engine once what has become of a peer. The engine passes it on to all
// communicators.
func (m *Mesh) end(slot int, l *link.Link, e membership.PeerEvent, effects membership.PeerEffects, err error) {
	isLost := effects.Has(membership.EndComms) && (e == membership.LinkLost || e == membership.LinkClosed)
	change := engine.PeerChange{
		Peer: slot, Link: l,
		LinkEnded:  isLost || effects.Has(membership.EndOperations) && l != nil,
		Everywhere: effects.Has(membership.RevokeComms),
		Trusted:    effects.Has(membership.Trust) && l != nil,
	}
	if change.Everywhere || effects.Has(membership.EndComms) && l != nil {
		change.Err = err
	}
	m.engine.PeerChanged(change)
}

// note describes the node of a slot in a log line.
func (m *Mesh) note(slot int) slog.Attr {
	p := m.peer(slot)
	return describe(p.rank, p.node)
}

func describe(rank int, n membership.Node) slog.Attr {
	return slog.Group("node", "rank", rank, "id", n.ID.String(), "addr", list(n.Addrs))
}
