package mesh

import (
	"cmp"
	"context"
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

// lossEvent returns the event for a link that has ended without a goodbye. If the peer has
// closed the connection, it is alive and considers this node failed, or its goodbye was lost.
// If this side has closed it, for example by closing the transport, that implies nothing about
// the peer.
func lossEvent(err error) membership.PeerEvent {
	if errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed) {
		return membership.LinkClosed
	}
	return membership.LinkLost
}

// linkEnded handles the end of a link: a goodbye, or a loss for the reason err. It ignores
// links outside slots.
func (m *Mesh) linkEnded(l *link.Link, kind membership.PeerEvent, err error) {
	m.loop.perform(func() func() { return m.linkEndedLocked(l, kind, err) })
}

func (m *Mesh) linkEndedLocked(l *link.Link, kind membership.PeerEvent, err error) (effects func()) {
	p := &m.peers[l.Peer]
	switch {
	case p.link != l && m.back != l:
		return nil
	case kind != membership.Goodbye:
		m.noteEndLocked(l)
	case l.Peer == m.self:
		return func() { m.engine.PeerChanged(engine.PeerChange{Peer: l.Peer, Link: l, LinkEnded: true}) }
	default:
		p.processEnded = hasLeft
	}
	e := event{slot: l.Peer, id: p.node.ID, kind: kind, facts: membership.NoWay.If(isNotNeighbor(err)), err: err, from: l}
	return inOrder(m.setRelayingLocked(l, false), m.decideOnLocked(e))
}

// inOrder returns a function that calls all others, except those that are nil.
func inOrder(all ...func()) func() {
	return func() {
		for _, f := range all {
			if f != nil {
				f()
			}
		}
	}
}

// peerReported handles the report of a peer that a node has lost its link to another node.
func (m *Mesh) peerReported(l *link.Link, f wire.Failed, text string) {
	m.loop.perform(func() func() { return m.peerReportedLocked(l, f, text) })
}

func (m *Mesh) peerReportedLocked(l *link.Link, f wire.Failed, text string) (effects func()) {
	sender := &m.peers[l.Peer]
	slot, ok := m.slots[membership.NodeID(f.Node)]
	by, known := m.slots[membership.NodeID(f.By)]
	if !known {
		by, f.By = l.Peer, sender.node.ID
	}
	if ok && sender.link == l {
		m.peers[slot].loss.noteOutlivedLocked(sender.node.ID) // The report may be an answer to that of this node.
	}
	if !ok || by == m.self || !sender.State.IsMember() || !m.peers[slot].State.IsMember() || sender.link != nil && sender.link != l {
		return nil // The node or the reporter is not in the view, or the link was replaced.
	}
	report := membership.PeerReport{Epoch: f.Epoch, Closed: f.Closed, Self: slot == m.self}
	kind := report.Event(m.view.Epoch)
	err := &reportedError{by: m.peers[by].rank, text: text, lostBy: -1}
	switch {
	case report.Self:
		slot, err.doubting, err.lostBy = l.Peer, true, by
	case m.peers[slot].State == membership.PeerLeft:
		err.left = true
	}
	return m.decideOnLocked(event{slot: slot, id: m.peers[slot].node.ID, kind: kind, err: err, from: l, report: f})
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
		return fmt.Sprintf("%s (as rank %d reports, which has not received its goodbye)", e.text, e.by)
	case e.doubting:
		return fmt.Sprintf("it considers this node failed: %s (as rank %d reports)", e.text, e.by)
	}
	return fmt.Sprintf("%s (as rank %d reports)", e.text, e.by)
}

func (e *reportedError) Unwrap() error { return transport.ErrPeerGone }

// Blames implements [engine.Blamer]. If the peer doubts this node, the error names the node
// that has lost this node, not the peer.
func (e *reportedError) Blames() int { return e.lostBy }

// reason returns the text of an error for reports to other nodes.
func reason(err error) string {
	if r, ok := errors.AsType[*reportedError](err); ok {
		return r.text
	}
	return err.Error()
}

// An event is a fact about a peer that this node has learned.
type event struct {
	slot   int
	id     membership.NodeID // the peer
	kind   membership.PeerEvent
	err    error                // the reason of a failure; nil if the peer left or stays
	from   *link.Link           // the link that has ended or has delivered the report, or nil
	report wire.Failed          // the report of another node
	facts  membership.PeerFacts // beside those of nextLocked
}

// A decision is an event and its consequences, for carryOut.
type decision struct {
	event
	node    membership.Node
	rank    int
	link    *link.Link // of the peer, or nil
	others  []*link.Link
	effects membership.PeerEffects
	drops   *link.Link // ends, unless it is nil
	level   slog.Level // of the log line about a failure
}

// decideOnLocked decides on an event, and returns the function that carries the decision out.
func (m *Mesh) decideOnLocked(e event) (effects func()) { return m.passLocked(m.decideLocked(nil, e)) }

// passLocked returns the function that carries out the decisions of a pass. Links that the pass drops leave their slots at once.
func (m *Mesh) passLocked(pass []decision) (effects func()) {
	if len(pass) == 0 {
		return nil
	}
	var gone []membership.NodeID
	for i := range pass {
		d := &pass[i]
		if m.hasEndedLocked(d.slot, d.id) || m.closing && d.effects.Has(membership.TellGone) { // Goodbyes over relays do not wait for it.
			gone = append(gone, d.id)
		}
		if d.effects.Has(membership.DropLink) {
			d.drops = m.takeLinkLocked(d.slot)
		}
		if d.effects.Has(membership.NotifyFailed) {
			d.level = m.failureLevelLocked()
		}
	}
	return func() { m.carryOut(pass, gone) }
}

// decideLocked changes the state of a peer and appends the decision to pass. It ignores the
// event if the slot has been given to another node since the event was made.
func (m *Mesh) decideLocked(pass []decision, e event) []decision {
	p := &m.peers[e.slot]
	if p.node.ID != e.id {
		return pass
	}
	d := decision{event: e, node: *p.node, rank: p.rank, link: p.link}
	before := p.Peer
	d.effects = m.nextLocked(e.slot, e.kind, e.facts)
	if d.report.Node != e.id { // This node has noticed it.
		d.report = wire.Failed{Node: e.id, By: m.cfg.Self, Epoch: m.view.Epoch}
	}
	d.report.Closed = d.effects.Has(membership.TellClosed)
	isReported := e.kind == membership.ReportedLost
	// The communicators with a doubted peer have ended already.
	if d.effects.Has(membership.EndComms) && (isReported || d.effects.Has(membership.ReportLost)) && before.State != membership.PeerDoubted {
		d.err = m.explainLocked(e.slot, e.err)
		if isReported && e.from != nil {
			p.loss.noteOutlivedLocked(m.peers[e.from.Peer].node.ID)
		}
	}
	switch r, ok := errors.AsType[*reportedError](p.report); {
	case isReported, e.kind == membership.ReportedClosed, e.kind == membership.DoubtsSelf:
		p.report = cmp.Or(p.report, e.err)
	case ok && d.effects.Has(membership.ReportLeft):
		d.err = &reportedError{by: r.by, text: r.text, left: true, lostBy: -1}
	case e.kind == membership.AdoptedIn, e.kind == membership.AdoptedOut, e.kind == membership.AdoptedUnlinked:
		p.report = nil
	}
	if p.Peer == before && d.effects == 0 {
		return pass
	}
	d.others = m.toldLocked(&d)
	if d.effects.Has(membership.Relink) { // The node makes the next connection.
		p.noteFailure(p.route, e.err)
		p.route = nil
		m.addPendingLocked(e.slot)
	}
	return append(pass, d)
}

// nextLocked applies an event to a peer: see [membership.Peer.Next]. more are the facts that belong to the event alone.
func (m *Mesh) nextLocked(slot int, kind membership.PeerEvent, more membership.PeerFacts) membership.PeerEffects {
	p := &m.peers[slot]
	more |= membership.IsNeighbor.If(m.reach.isNear(p.node.ID)) | membership.HasRelays.If(m.cfg.Relay != nil) |
		membership.SelfLeaves.If(m.closing) | membership.SelfOut.If(m.out)
	next, effects := p.Next(kind, more)
	if next != p.Peer {
		p.Peer = next
		m.changed.Send()
	}
	return effects
}

// toldLocked returns the links over which others learn of a decision.
func (m *Mesh) toldLocked(d *decision) (others []*link.Link) {
	reports := d.effects&(membership.TellLost|membership.TellClosed) != 0
	var watches []int
	switch {
	case d.effects.Has(membership.TellLeaving), d.effects.Has(membership.TellGone) && m.cfg.Relay != nil && (m.closing || !d.effects.Has(membership.ReportLeft)):
		others = m.relayingLocked(d.from)
		return slices.DeleteFunc(others, func(l *link.Link) bool { return l.Peer == d.slot && d.effects.Has(membership.TellGone) })
	case d.effects.Has(membership.TellGone):
		watches = m.watchRanksLocked() // The graph of watches connects all nodes, and goodbyes are frequent when a world ends.
	case !reports && !d.effects.Has(membership.TellPeer):
		return nil
	}
	answers := reports && m.view.Size() > reportsFrom // See LossError.find.
	for slot := range m.peers {
		p := &m.peers[slot]
		told := slot != d.slot && (reports || slices.Contains(watches, p.rank)) && (p.link != d.from || answers)
		if slot != m.self && p.isLinked() && (told || slot == d.slot && d.effects.Has(membership.TellPeer)) {
			others = append(others, p.link)
		}
	}
	return others
}

// tell tells another node of a decision.
func (d *decision) tell(l *link.Link) {
	switch {
	case d.effects.Has(membership.TellGone):
		l.Gone(wire.Gone{Node: d.id})
	case d.effects.Has(membership.TellLeaving):
		l.Leaving(wire.Leaving{Node: d.id})
	default:
		l.Failed(d.report, reason(d.err))
	}
}

// carryOut carries out the decisions of a pass, in the order of [membership.PeerEffects]. The seed learns of a failure first, so that the next view comes soon, then
// the log and the program. The other nodes learn of it before operations of this node end: a
// program may close its node as soon as a call has failed, and if its goodbye arrived before
// the reason, the others would blame this node. The engine is called once. Links are closed
// last, when they are unused. Nothing here blocks. The relay learns the nodes that have gone.
func (m *Mesh) carryOut(pass []decision, gone []membership.NodeID) {
	for i := range pass {
		m.notify(&pass[i])
	}
	changes := make([]engine.PeerChange, 0, len(pass))
	for i := range pass {
		for _, l := range pass[i].others {
			pass[i].tell(l)
		}
		changes = append(changes, pass[i].change())
	}
	m.engine.PeerChanged(changes...)
	m.relayPass(gone)
	for i := range pass {
		m.followUp(&pass[i])
	}
}

// followUp carries out the effects on the link of a peer.
func (m *Mesh) followUp(d *decision) {
	switch {
	case d.drops != nil:
		m.discardLater(d.drops)
	case d.effects.Has(membership.Relink):
		m.engine.Forget(d.link)
		if m.cfg.Linked != nil {
			m.cfg.Linked(d.id, false)
		}
		if d.slot < m.self && m.cfg.Lost != nil { // Both nodes are joining, and this one has dialed.
			m.cfg.Lost(d.id, d.err) // If they get no new link, the seed can admit only one of them.
		}
	case d.effects.Has(membership.AwaitProposal):
		m.wg.Go(func() { m.awaitProposal(d.event) })
	case d.effects.Has(membership.AwaitGoodbye):
		m.wg.Go(func() { m.awaitGoodbye(d.link, d.event) })
	case d.effects.Has(membership.AskPeer) && d.link != nil && m.reach.canDial(d.id):
		d.link.Need(link.Report)
	}
}

// notify informs the session with the seed, the log and the program.
func (m *Mesh) notify(d *decision) {
	node := describe(d.rank, d.node)
	if d.effects.Has(membership.ReportLost) && m.cfg.Lost != nil {
		m.cfg.Lost(d.node.ID, d.err)
	}
	if d.effects.Has(membership.ReportLeft) && m.cfg.Left != nil {
		m.cfg.Left(d.node.ID)
	}
	if d.effects.Has(membership.NotifyLeft) {
		m.log.Info("a node has left", node)
	}
	if d.effects.Has(membership.NotifyRemoved) {
		m.log.Info("a node is no longer in the world", node)
	}
	switch {
	case d.effects.Has(membership.NotifyFailed):
		m.log.Log(context.Background(), d.level, "a node has failed", node, "reason", d.err)
	case d.effects.Has(membership.NotifyLost):
		m.log.Warn("a node that has left counts as failed", node, "reason", d.err)
	default:
		return
	}
	if m.cfg.Failed != nil {
		m.cfg.Failed(d.rank, d.node, d.err)
	}
}

// failureLevelLocked is Error once in a view: other nodes often fail with the first one, and errors name all suspects.
func (m *Mesh) failureLevelLocked() slog.Level {
	if m.failedIn == m.view.Epoch+1 {
		return slog.LevelInfo
	}
	m.failedIn = m.view.Epoch + 1
	return slog.LevelError
}

// change returns the consequences of a decision for communicators.
func (d *decision) change() engine.PeerChange {
	isLost := d.effects.Has(membership.EndComms | membership.ReportLost)
	c := engine.PeerChange{
		Peer: d.slot, Link: d.link,
		LinkEnded:  isLost || d.effects.Has(membership.EndOperations) && d.link != nil,
		Everywhere: d.effects.Has(membership.RevokeComms),
		Trusted:    d.effects.Has(membership.Trust) && d.link != nil,
	}
	if c.Everywhere || d.effects.Has(membership.EndComms) && d.link != nil {
		c.Err = d.err
	}
	return c
}
