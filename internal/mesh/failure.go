package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// lost handles the end of a link without a goodbye. A connection that the peer has
// closed shows that it lives and takes this node for failed, or that its goodbye was
// lost; one that was closed on this side, as when its transport is closed under it, says
// nothing about the peer.
func (m *Mesh) lost(l *link.Link, err error) {
	m.mu.Lock()
	m.part(l)
	m.mu.Unlock()
	if m.unlink(l) {
		m.engine.Forget(l)
		m.reportLink(l.Peer)
		m.missed(l.Peer, err)
		return
	}
	event := membership.LinkLost
	if errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed) {
		event = membership.LinkClosed
	}
	m.apply(l.Peer, event, news{err: err, from: l})
}

// left handles the goodbye of a peer. Its silence from now on is no failure.
func (m *Mesh) left(l *link.Link) {
	if l.Peer == m.self {
		m.engine.Left(l)
		return
	}
	m.mu.Lock()
	m.parted[l.Peer] = hasLeft
	m.mu.Unlock()
	m.apply(l.Peer, membership.Goodbye, news{from: l})
}

// Gone are the numbers of the links, as Link.Peer has them, of nodes that use no
// memory which they shared with this one any more: their processes have ended, or they
// had ended all that they did before they left. That others have been lost says
// nothing of the kind: they may just have been stopped.
func (m *Mesh) Gone() (seats []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for seat, ended := range m.parted {
		if ended() {
			m.parted[seat] = hasLeft // It need not be asked again.
			seats = append(seats, seat)
		}
	}
	return seats
}

// part notes that the link to a node has ended. It is called with the lock held.
func (m *Mesh) part(l *link.Link) {
	if s := l.Sharer(); s != nil && m.parted[l.Peer] == nil {
		m.parted[l.Peer] = s.PeerEnded()
	}
}

// hasLeft is what has become of a node that has said goodbye.
func hasLeft() bool { return true }

// missed says that this node has lost one to which it has linked itself, and which
// waits as this one does, or did. If it does not come again, one of them cannot be let
// in.
func (m *Mesh) missed(seat int, err error) {
	m.mu.Lock()
	waits := m.formed && m.expected[seat] && seat < m.self
	m.mu.Unlock()
	if waits && m.cfg.Lost != nil {
		m.cfg.Lost(m.node(seat).ID, err)
	}
}

// told handles the report of a peer that a node has lost its link to another.
func (m *Mesh) told(l *link.Link, f wire.Failed, text string) {
	m.mu.Lock()
	seat, ok := m.seatOf(membership.NodeID(f.Node))
	by, known := m.seatOf(membership.NodeID(f.By))
	if !known {
		by, f.By = l.Peer, m.nodes[l.Peer].ID
	}
	if !ok || by == m.self || m.expected[l.Peer] || m.expected[seat] {
		m.mu.Unlock()
		return // The node is not in the view, or its reporter is not.
	}
	report := membership.PeerReport{Epoch: f.Epoch, Closed: f.Closed, Self: seat == m.self}
	event := report.Event(m.view.Epoch)
	err := &reportedError{by: m.ranks[by], text: text, lostBy: -1}
	switch {
	case report.Self:
		seat, err.doubting, err.lostBy = l.Peer, true, by
	case m.states[seat] == membership.PeerLeft:
		err.left = true
	}
	m.mu.Unlock()
	m.apply(seat, event, news{err: err, from: l, report: f})
}

// A reportedError is the reason of a failure that another node has noticed.
type reportedError struct {
	by   int // the rank that has lost its link to the node, not the one that says so
	text string
	// Left says that the node has said goodbye to this one, and doubting that this
	// node was lost, so that the peer has ended its communicators.
	left, doubting bool
	lostBy         int // the seat of the node that has lost this one, if doubting
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

// Blames implements [engine.Blamer]: a peer that doubts this node believes the node that
// has lost it, which is the one to name.
func (e *reportedError) Blames() int { return e.lostBy }

// reason is what to tell others of an error.
func reason(err error) string {
	if r, ok := errors.AsType[*reportedError](err); ok {
		return r.text
	}
	return err.Error()
}

// News are the details of an event.
type news struct {
	err    error       // why the peer is of no use; nil if it left or stays
	from   *link.Link  // the link that has ended, or that has brought the report; nil if neither
	report wire.Failed // of another node
}

// apply changes the state of a peer and carries the effects out. Events of all peers
// follow each other: an event that arrives while another one is being carried out
// finds that everything has been said and done.
//
// The order of the effects is that of their declaration in package member. The seed
// hears of a failure first, so that the next view comes soon; then the log and the
// program. The other nodes hear of it before operations of this one end: a program
// may close its node as soon as a call has failed, and its goodbye must not
// arrive before the reason for it, or this node would be taken for the reason. Links are
// closed last, when nothing uses them any more. Nothing here blocks.
func (m *Mesh) apply(seat int, e membership.PeerEvent, n news) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	var effects membership.PeerEffects
	m.states[seat], effects = m.states[seat].Next(e)
	id, l := m.nodes[seat].ID, m.links[seat]
	if n.report.Node != id { // It is the news of this node.
		n.report = wire.Failed{Node: id, By: m.cfg.Self, Epoch: m.view.Epoch}
	}
	n.report.Closed = effects.Has(membership.TellClosed)
	switch e {
	case membership.ReportedLost, membership.ReportedClosed, membership.DoubtsSelf:
		m.reports[seat] = cmp.Or(m.reports[seat], n.err)
	case membership.Goodbye:
		if r, ok := m.reports[seat].(*reportedError); ok {
			n.err = &reportedError{by: r.by, text: r.text, left: true, lostBy: -1}
		}
	case membership.AdoptedIn, membership.AdoptedOut, membership.AdoptedUnlinked:
		m.reports[seat] = nil
	}
	links := slices.Clone(m.links)
	m.mu.Unlock()
	m.report(id, effects, n.err)
	m.notify(seat, effects, n.err)
	if effects&(membership.TellLost|membership.TellClosed) != 0 {
		m.tell(links, seat, n)
	}
	if effects.Has(membership.TellPeer) && l != nil {
		l.Failed(n.report, reason(n.err))
	}
	m.end(seat, l, e, effects, n.err)
	if effects.Has(membership.DropLink) {
		m.drop(seat, l)
	}
}

// report tells the session with the seed.
func (m *Mesh) report(id membership.NodeID, effects membership.PeerEffects, err error) {
	if effects.Has(membership.ReportLost) && m.cfg.Lost != nil {
		m.cfg.Lost(id, err)
	}
	if effects.Has(membership.ReportLeft) && m.cfg.Left != nil {
		m.cfg.Left(id)
	}
}

// notify writes to the log, and passes failures to the program.
func (m *Mesh) notify(seat int, effects membership.PeerEffects, err error) {
	if effects.Has(membership.NotifyLeft) {
		m.log.Info("a node has left", m.note(seat))
	}
	if effects.Has(membership.NotifyRemoved) {
		m.log.Info("a node is not in the world any more", m.note(seat))
	}
	switch {
	case effects.Has(membership.NotifyFailed):
		m.log.Error("a node has failed", m.note(seat), "reason", err)
	case effects.Has(membership.NotifyLost):
		m.log.Warn("a node that has left counts as failed", m.note(seat), "reason", err)
	default:
		return
	}
	if m.cfg.Failed != nil {
		m.mu.Lock()
		n, rank := m.nodes[seat], m.ranks[seat]
		m.mu.Unlock()
		m.cfg.Failed(rank, n, err)
	}
}

// tell tells all other nodes that a peer was lost, except the peer and the node that has
// brought the news.
func (m *Mesh) tell(links []*link.Link, lost int, n news) {
	for seat, l := range links {
		if seat != lost && seat != m.self && l != nil && l != n.from {
			l.Failed(n.report, reason(n.err))
		}
	}
}

// end ends the communicators and operations that cannot go on without a peer.
func (m *Mesh) end(seat int, l *link.Link, e membership.PeerEvent, effects membership.PeerEffects, err error) {
	isLost := effects.Has(membership.EndComms) && (e == membership.LinkLost || e == membership.LinkClosed)
	change := engine.PeerChange{
		Peer: seat, Link: l,
		LinkEnded:  isLost || effects.Has(membership.EndOperations) && l != nil,
		Everywhere: effects.Has(membership.RevokeComms),
		Trusted:    effects.Has(membership.Trust) && l != nil,
	}
	if change.Everywhere || effects.Has(membership.EndComms) && l != nil {
		change.Err = err
	}
	m.engine.PeerChanged(change)
}

func (m *Mesh) note(seat int) slog.Attr {
	m.mu.Lock()
	n, rank := m.nodes[seat], m.ranks[seat]
	m.mu.Unlock()
	return slog.Group("node", "rank", rank, "id", n.ID.String(), "addr", list(n.Addrs))
}
