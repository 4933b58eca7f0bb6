package mesh

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
	"github.com/nexar-go/nexar/internal/wire"
)

// Explain tells all peers that an operation of this node has failed with the error text, and
// that the node cause is the reason. If cause has itself named another node, Explain names that
// one. lost says that this node has lost cause. Explain blocks until all peers have confirmed,
// for at most confirmMax: the program may end its process because of the error, and the peers
// must know the reason before they lose this node. It does nothing if it has named the same node
// not long ago. Concurrent calls run one after the other.
func (m *Mesh) Explain(cause membership.NodeID, lost bool, text string) {
	told := <-m.told
	defer func() { m.told <- told }()
	r := blame.Reason{Cause: cause, Lost: lost, At: time.Now()}
	m.mu.Lock()
	if slot, known := m.slots[cause]; known {
		r = r.Of(m.peers[slot].reason)
	}
	if r.Repeats(&told) || m.closing {
		m.mu.Unlock()
		return
	}
	told = r
	links := m.linksLocked(func(p *peer) bool { return p.isLinked() && p.node.ID != r.Cause && !p.State.IsGone() })
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), confirmMax)
	defer cancel()
	confirmed := make(map[*link.Link]<-chan struct{}, len(links))
	for _, l := range links {
		confirmed[l] = l.Reason(wire.Reason{Node: r.Cause, Lost: r.Lost}, text)
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
	r := &blame.Reason{Cause: f.Node, Lost: f.Lost, Text: text, At: time.Now()}
	m.loop.perform(func() func() {
		if p := &m.peers[l.Peer]; p.link == l {
			p.reason = r
		}
		return nil
	})
}
