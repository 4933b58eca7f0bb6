package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// reasonMax is the maximum age of an error of a node that counts as the reason why the node has
	// ended.
	reasonMax = 10 * time.Second
	// confirmMax bounds the time that this node waits for a peer to confirm a reason or to answer a
	// ping. The wait also ends when the link to the peer ends.
	confirmMax = 500 * time.Millisecond
)

// A nodeError is an error of a node and the node that caused it.
type nodeError struct {
	cause membership.NodeID
	lost  bool // the node has lost cause
	text  string
	at    time.Time
}

// explains reports whether the error, if it is not nil, may be the reason why its node has ended now.
func (r *nodeError) explains() bool {
	return r != nil && r.cause != (membership.NodeID{}) && time.Since(r.at) < reasonMax
}

// Explain tells all peers that an operation of this node has failed with the error text, and
// that the node cause is the reason. If cause has itself named another node, Explain names that
// one. lost says that this node has lost cause. Explain blocks until all peers have confirmed,
// for at most confirmMax: the program may end its process because of the error, and the peers
// must know the reason before they lose this node. It does nothing if it has named the same node
// within reasonMax/2. Concurrent calls run one after the other.
func (m *Mesh) Explain(cause membership.NodeID, lost bool, text string) {
	m.explaining <- struct{}{}
	defer func() { <-m.explaining }()
	m.mu.Lock()
	if slot, known := m.slotOfLocked(cause); known && m.peers[slot].reason.explains() {
		cause, lost = m.peers[slot].reason.cause, m.peers[slot].reason.lost
	}
	if m.told.cause == cause && time.Since(m.told.at) < reasonMax/2 || m.closing {
		m.mu.Unlock()
		return
	}
	m.told = nodeError{cause: cause, at: time.Now()}
	links := m.linksLocked(func(p *peer) bool { return p.isLinked() && p.node.ID != cause && !p.state.IsGone() })
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), confirmMax)
	defer cancel()
	confirmed := make(map[*link.Link]<-chan struct{}, len(links))
	for _, l := range links {
		confirmed[l] = l.Reason(wire.Reason{Node: cause, Lost: lost}, text)
	}
	awaitConfirmed(ctx, confirmed)
}

// awaitConfirmed blocks until every link has confirmed or has ended, or until ctx ends.
func awaitConfirmed(ctx context.Context, confirmed map[*link.Link]<-chan struct{}) {
	for l, c := range confirmed {
		select {
		case <-c:
		case <-l.Done():
		case <-ctx.Done():
		}
	}
}

// peerExplained records the error of a peer.
func (m *Mesh) peerExplained(l *link.Link, f wire.Reason, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := &m.peers[l.Peer]; p.link == l {
		p.reason = &nodeError{cause: f.Node, lost: f.Lost, text: text, at: time.Now()}
	}
}

// isLostLocked reports whether this node has lost the peer in a slot, even if that has not been
// decided yet.
func (m *Mesh) isLostLocked(slot int) bool {
	p := &m.peers[slot]
	return p.state.IsGone() || p.link != nil && p.link.IsOver()
}

// explainLocked returns the error for the loss of a peer. If the peer has reported an error that a live
// node has caused, that node explains its end. Otherwise the error is a [LossError].
func (m *Mesh) explainLocked(slot int, err error) error {
	if r := m.peers[slot].reason; r.explains() && !r.lost {
		return m.explainedLocked(slot, err)
	}
	return m.lossLocked(slot, err)
}

// explainedLocked returns the error for the loss of a peer that has reported a reason.
func (m *Mesh) explainedLocked(slot int, err error) *explainedError {
	p := &m.peers[slot]
	cause, known := m.slotOfLocked(p.reason.cause)
	if !known || cause == m.self {
		cause = -1
	}
	return &explainedError{rank: p.rank, text: p.reason.text, cause: cause, own: cause == slot, err: err}
}

// An explainedError is the loss of a peer that has reported an error caused by another node.
type explainedError struct {
	rank  int
	text  string
	cause int  // slot, or -1
	own   bool // the peer is the cause; see Mesh.Fail
	err   error
}

func (e *explainedError) Error() string {
	if e.own {
		return e.text
	}
	return fmt.Sprintf("rank %d has ended after its error %q (%v)", e.rank, e.text, e.err)
}

func (e *explainedError) Unwrap() error { return e.err }

// Blames implements [engine.Blamer].
func (e *explainedError) Blames() int { return e.cause }
