package mesh

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
)

const (
	// confirmMax bounds the time that this node waits for a peer to confirm a reason or to answer a
	// ping. The wait also ends when the link to the peer ends.
	confirmMax = 500 * time.Millisecond
	// reportsFrom is the size of the largest world with pings to all peers as soon as a node is lost.
	reportsFrom = 64
	// reportsMax is the time that a node of a larger world waits for the reports of its peers before it pings the others.
	reportsMax = confirmMax / 2
)

// errNoAnswer is the error of a suspect that this node has not lost.
var errNoAnswer = fmt.Errorf("no answer within %v", confirmMax)

// A LossError is the loss of a peer. Operations that need the peer end at once, before the cause of the
// loss is known.
type LossError struct {
	id    membership.NodeID
	err   error         // as the loss was noticed
	known chan struct{} // closed when cause is final
	cause blame.Cause

	asked map[membership.NodeID]*link.Link // the other peers with a link
	// outlived has the asked nodes that have outlived the peer: they have answered or, in a large world, reported the loss to this node.
	// The loop of the mesh changes it. all is closed when all have reported; it is nil in a small world.
	outlived map[membership.NodeID]bool
	all      chan struct{}
}

func (e *LossError) Error() string { return e.err.Error() }

func (e *LossError) Unwrap() error { return e.err }

// Known returns a channel that is closed when the cause of the loss is known: all other peers have answered a ping that was
// sent after the loss, have reported the loss themselves, or are lost as well, at most confirmMax after the loss.
func (e *LossError) Known() <-chan struct{} { return e.known }

// Cause returns the cause of the loss. Until it is known, that is the lost peer.
func (e *LossError) Cause() blame.Cause {
	if c := e.final(); c != nil {
		return *c
	}
	return blame.Cause{Node: e.id, Err: e.err}
}

// final returns the cause, or nil if it is not known yet.
func (e *LossError) final() *blame.Cause {
	select {
	case <-e.known:
		return &e.cause
	default:
		return nil
	}
}

// explainLocked returns the error for the loss of a peer. If the peer has told an error that a live
// node has caused, that node explains its end. Otherwise the error is a [LossError], whose cause the mesh begins to find out.
func (m *Mesh) explainLocked(slot int, err error) error {
	p := &m.peers[slot]
	e := &LossError{id: p.node.ID, err: err, known: make(chan struct{}), asked: make(map[membership.NodeID]*link.Link), outlived: make(map[membership.NodeID]bool)}
	if p.reason.Explains(time.Now()) && !p.reason.Lost {
		return m.knownLocked(e).Explain(e.id, err)
	}
	p.loss = e
	if m.closing {
		e.cause = e.Cause()
		close(e.known)
		return e
	}
	for other := range m.peers {
		q := &m.peers[other]
		if other != slot && other != m.self && q.isLinked() && q.State.IsMember() && !q.State.IsGone() {
			e.asked[q.node.ID] = q.link
		}
	}
	if m.view.Size() > reportsFrom && len(e.asked) > 0 {
		e.all = make(chan struct{})
	}
	m.wg.Go(func() { e.find(m.run, m.loop.ask, m.knownLocked) })
	return e
}

// noteOutlivedLocked records that a peer has reported the loss of another one.
func (e *LossError) noteOutlivedLocked(peer membership.NodeID) {
	if e == nil || e.all == nil || e.asked[peer] == nil || e.outlived[peer] {
		return
	}
	if e.outlived[peer] = true; len(e.outlived) == len(e.asked) {
		close(e.all)
	}
}

// find determines the cause. A peer that answers a ping has outlived the lost one. In a large world, where every node tells its
// peers of a loss, only the peers that have not reported it within reportsMax are pinged.
func (e *LossError) find(run context.Context, ask func(decide func()), knownLocked func(e *LossError) *blame.Peers) {
	defer close(e.known)
	ctx, cancel := context.WithTimeout(run, confirmMax)
	defer cancel()
	if e.all != nil {
		reports, cancel := context.WithTimeout(ctx, reportsMax)
		defer cancel()
		select {
		case <-e.all:
		case <-reports.Done():
		}
	}
	pongs := make(map[*link.Link]<-chan struct{}, len(e.asked))
	ask(func() {
		for id, l := range e.asked {
			if !e.outlived[id] {
				pongs[l] = nil
			}
		}
	})
	for l := range pongs {
		pongs[l] = l.ConfirmedPing()
	}
	awaitConfirmed(ctx, pongs)
	ask(func() { // after the reasons that have arrived
		for id, l := range e.asked {
			select {
			case <-pongs[l]:
				e.outlived[id] = true
			default:
			}
		}
		e.cause = knownLocked(e).Find(e.id, e.err)
	})
}

// knownLocked returns what this node knows of the peers when it looks for the cause of a loss.
func (m *Mesh) knownLocked(e *LossError) *blame.Peers {
	known, named, now := &blame.Peers{Self: m.cfg.Self, NoAnswer: errNoAnswer}, map[membership.NodeID]bool{e.id: true}, time.Now()
	for slot := range m.peers {
		if r := m.peers[slot].reason; r.Explains(now) {
			named[r.Cause] = true
		}
	}
	for slot := range m.peers {
		p := &m.peers[slot]
		id, explains := p.node.ID, p.reason.Explains(now)
		if slot == m.self || !(named[id] || explains || e.asked[id] != nil || p.State == membership.PeerFailed) {
			continue
		}
		q := blame.Peer{
			Slot: slot, Rank: p.rank, Node: p.node, End: p.end(), Asked: e.asked[id] != nil && p.State.IsMember(), Answered: e.outlived[id],
			Failed: p.State == membership.PeerFailed && p.loss != nil,
		}
		if explains {
			q.Reason = p.reason
		}
		if p.link != nil {
			q.Err = p.link.Err()
		}
		if p.loss != nil {
			q.Loss = p.loss.final()
			q.Err = cmp.Or(q.Err, p.loss.err)
		}
		known.List = append(known.List, q)
	}
	return known
}

// end returns how the peer has ended, even if that has not been decided yet.
func (p *peer) end() blame.End {
	isOver := p.link != nil && p.link.IsOver()
	switch {
	case p.State == membership.PeerFailed, isOver && p.link.Err() != nil && !p.link.HasLeft():
		return blame.Broken
	case p.State.IsGone(), isOver:
		return blame.Left
	}
	return blame.Alive
}
