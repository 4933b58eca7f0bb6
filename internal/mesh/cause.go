package mesh

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// A LossError is the loss of a peer. Operations that need the peer end at once, before the cause of the
// loss is known: see [LossError.Cause].
type LossError struct {
	err   error         // as the loss was noticed
	known chan struct{} // closed when cause is final
	cause Cause

	// In a large world, outlived has the nodes that have reported the loss to this node, so they have outlived the peer.
	// Mesh.mu guards it. all is closed when it has the asked nodes.
	outlived map[membership.NodeID]bool
	asked    map[membership.NodeID]*link.Link
	all      chan struct{}
}

func (e *LossError) Error() string { return e.err.Error() }

func (e *LossError) Unwrap() error { return e.err }

// Cause returns the cause of the loss. It blocks until all other peers have answered a ping that was
// sent after the loss, have reported the loss themselves, or are lost as well, for at most confirmMax after the loss.
func (e *LossError) Cause() Cause {
	<-e.known
	return e.cause
}

// isFinal reports whether Cause does not block.
func (e *LossError) isFinal() bool {
	select {
	case <-e.known:
		return true
	default:
		return false
	}
}

// A Cause is the node that has caused the loss of a peer: the peer itself, or another one.
type Cause struct {
	Node membership.NodeID
	Err  error // the loss of Node, or the error that the peer has reported
	// Suspects are Node and other nodes, by rank, if this node cannot know the one of them that is the
	// cause. Otherwise it is nil.
	Suspects []Suspect
}

// A Suspect is a node that may be the cause of a loss.
type Suspect struct {
	Node membership.Node
	Err  error // its loss, the error that it has told, or errNoAnswer
	rank int
}

// errNoAnswer is the error of a suspect that this node has not lost.
var errNoAnswer = fmt.Errorf("no answer within %v", confirmMax)

// lossLocked returns the error for the loss of a peer and begins to find out the cause.
func (m *Mesh) lossLocked(slot int, err error) *LossError {
	p := &m.peers[slot]
	e := &LossError{err: err, known: make(chan struct{})}
	p.loss = e
	if m.closing {
		e.cause = Cause{Node: p.node.ID, Err: err}
		close(e.known)
		return e
	}
	asked := make(map[membership.NodeID]*link.Link)
	for other := range m.peers {
		q := &m.peers[other]
		if other != slot && other != m.self && q.isLinked() && !q.expected && !q.state.IsGone() {
			asked[q.node.ID] = q.link
		}
	}
	if m.view.Size() > reportsFrom {
		e.outlived, e.asked, e.all = make(map[membership.NodeID]bool), asked, make(chan struct{})
	}
	id := p.node.ID
	m.wg.Go(func() { m.findCause(e, id, asked) })
	return e
}

const (
	// reportsFrom is the size of the largest world with pings to all peers as soon as a node is lost.
	reportsFrom = 64
	// reportsMax is the time that a node of a larger world waits for the reports of its peers before it pings the others.
	reportsMax = confirmMax / 2
)

// noteOutlivedLocked records that a peer has reported the loss of another one.
func (e *LossError) noteOutlivedLocked(peer membership.NodeID) {
	if e == nil || e.outlived == nil || e.asked[peer] == nil || e.outlived[peer] {
		return
	}
	if e.outlived[peer] = true; len(e.outlived) == len(e.asked) {
		close(e.all)
	}
}

// awaitReports waits for the reports of the peers in a large world: every node tells its peers of a loss. It returns the peers
// that have not reported it.
func (m *Mesh) awaitReports(ctx context.Context, e *LossError, asked map[membership.NodeID]*link.Link) (silent map[membership.NodeID]*link.Link) {
	if e.all == nil || len(asked) == 0 {
		return asked
	}
	ctx, cancel := context.WithTimeout(ctx, reportsMax)
	defer cancel()
	select {
	case <-e.all:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	silent = maps.Clone(asked)
	maps.DeleteFunc(silent, func(id membership.NodeID, _ *link.Link) bool { return e.outlived[id] })
	return silent
}

// findCause determines the cause of the loss of a node. A peer that answers a ping has outlived the node.
func (m *Mesh) findCause(e *LossError, id membership.NodeID, asked map[membership.NodeID]*link.Link) {
	defer close(e.known)
	ctx, cancel := context.WithTimeout(m.run, confirmMax)
	defer cancel()
	silent := m.awaitReports(ctx, e, asked)
	pongs := make(map[*link.Link]<-chan struct{}, len(silent))
	for _, l := range silent {
		pongs[l] = l.ConfirmedPing()
	}
	awaitConfirmed(ctx, pongs)
	answered := make(map[membership.NodeID]bool, len(asked))
	for other := range asked {
		answered[other] = true // by its report, or by a pong
	}
	for other, l := range silent {
		select {
		case <-pongs[l]:
			answered[other] = true
		default:
			answered[other] = false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e.cause = m.causeLocked(e, id, answered)
}

// causeLocked returns the cause of the loss of a node. answered has the other peers that were linked
// when the node was lost.
//
// The reasons that lost peers have reported lead from one peer to the next, and end at a peer without
// a reason. A reason that names another lost node counts only if this node has lost that node as well,
// since a peer that is cut off loses all others.
func (m *Mesh) causeLocked(e *LossError, id membership.NodeID, answered map[membership.NodeID]bool) Cause {
	slot, known := m.slotOfLocked(id)
	if !known { // It is in no view any more.
		return Cause{Node: id, Err: e.err}
	}
	err := e.err
	var passed []int // slots
	for m.peers[slot].reason.explains() {
		p := &m.peers[slot]
		explained := m.explainedLocked(slot, e.err)
		next, known := m.slotOfLocked(p.reason.cause)
		switch {
		case !known || next == m.self && !p.reason.lost:
			return Cause{Node: p.node.ID, Err: explained}
		case !p.reason.lost:
			return Cause{Node: p.reason.cause, Err: explained}
		case next == m.self || answered[p.reason.cause]:
			return Cause{Node: p.node.ID, Err: err}
		case !m.isLostLocked(next):
			return m.unknownLocked(slot, explained, []Suspect{m.suspectLocked(next, errNoAnswer)})
		case slices.Contains(passed, next): // Peers have named each other.
			return m.unknownLocked(slot, explained, []Suspect{m.suspectLocked(next, m.explainedLocked(next, e.err))})
		}
		passed = append(passed, slot)
		slot, err = next, explained
	}
	return m.unknownLocked(slot, err, m.suspectsLocked(slot, answered))
}

// unknownLocked returns the cause of a failure that is the peer in a slot, or one of the others.
func (m *Mesh) unknownLocked(slot int, err error, others []Suspect) Cause {
	c := Cause{Node: m.peers[slot].node.ID, Err: err}
	if len(others) > 0 {
		known := err
		if !m.peers[slot].reason.explains() {
			known = m.noReasonLocked(slot)
		}
		others = append(others, m.suspectLocked(slot, known))
		c.Suspects = others
		slices.SortFunc(c.Suspects, func(a, b Suspect) int { return cmp.Compare(a.rank, b.rank) })
	}
	return c
}

func (m *Mesh) suspectLocked(slot int, err error) Suspect {
	p := &m.peers[slot]
	return Suspect{Node: *p.node, Err: err, rank: p.rank}
}

// noReasonLocked returns the error of a lost peer that has reported no reason.
func (m *Mesh) noReasonLocked(slot int) error {
	p := &m.peers[slot]
	var err error
	if p.link != nil {
		err = p.link.Err()
	}
	if err == nil && p.loss != nil {
		err = p.loss.err
	}
	return fmt.Errorf("it told no reason: %w", err)
}

// suspectsLocked returns the peers that may be the cause as well as a lost peer without a reason: they
// have told no reason either, and are not known to have outlived it.
func (m *Mesh) suspectsLocked(lost int, answered map[membership.NodeID]bool) (suspects []Suspect) {
	for slot := range m.peers {
		p := &m.peers[slot]
		if slot == lost || slot == m.self || p.expected || p.reason.explains() {
			continue
		}
		pong, asked := answered[p.node.ID]
		switch {
		case pong:
		case asked && m.isBrokenLocked(slot), !asked && m.fellWithLocked(slot, lost):
			suspects = append(suspects, m.suspectLocked(slot, m.noReasonLocked(slot)))
		case asked && !m.isLostLocked(slot):
			suspects = append(suspects, m.suspectLocked(slot, errNoAnswer))
		}
	}
	return suspects
}

// isBrokenLocked reports whether the link to a peer has ended without a goodbye of the peer.
func (m *Mesh) isBrokenLocked(slot int) bool {
	p := &m.peers[slot]
	return p.state == membership.PeerFailed ||
		p.link != nil && p.link.IsOver() && p.link.Err() != nil && !p.link.HasLeft()
}

// fellWithLocked reports whether a peer was lost before another one, and the other one may not have
// outlived it.
func (m *Mesh) fellWithLocked(slot, other int) bool {
	p := &m.peers[slot]
	if p.state != membership.PeerFailed || p.loss == nil {
		return false
	}
	return !p.loss.isFinal() || slices.ContainsFunc(p.loss.cause.Suspects, func(s Suspect) bool { return s.Node.ID == m.peers[other].node.ID })
}
