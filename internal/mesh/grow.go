package mesh

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/transport"
)

// seat gives a node a seat. It is called with the lock held, or before anyone else
// has m.
func (m *Mesh) seat(n member.Node, rank int) (seat int) {
	m.nodes = append(m.nodes, n)
	m.ranks = append(m.ranks, rank)
	m.links = append(m.links, nil)
	m.routes = append(m.routes, nil)
	m.states = append(m.states, member.PeerLinked)
	m.reports = append(m.reports, nil)
	return len(m.nodes) - 1
}

// seatOf is the seat of a node that has one. It is called with the lock held.
func (m *Mesh) seatOf(id member.NodeID) (seat int, ok bool) {
	return member.View{Nodes: m.nodes}.Rank(id)
}

// node is who has a seat.
func (m *Mesh) node(seat int) member.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[seat]
}

// Expect lets nodes connect themselves to this one that are not in the view, but
// may be in the next. That they do not, or do it anew, is no failure, even if they have
// been linked to this node before.
func (m *Mesh) Expect(nodes []member.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		seat, known := m.seatOf(n.ID)
		if _, in := m.view.Rank(n.ID); in {
			continue
		}
		if !known {
			seat = m.seat(n, -1)
		}
		m.expected[seat] = true
		m.states[seat], _ = m.states[seat].Next(member.Expected)
		m.reports[seat] = nil
	}
}

var (
	// errRemoved is why links to nodes end that are not in the view any more.
	errRemoved = fmt.Errorf("%w: it is not in the world any more", transport.ErrPeerGone)
	// errUnlinked is what is wrong with a node of a view that has no link to this
	// one.
	errUnlinked = fmt.Errorf("%w: it has not connected to this node", transport.ErrPeerGone)
)

// settlePatience is how long a node that has made its links to the world may not be
// linked for others, which learn of that a moment later: on a lossy network, when the
// last packet of a handshake has come after several attempts. If the node dies
// meanwhile there is another view.
const settlePatience = 30 * time.Second

// Adopt goes on with the nodes of a later view: doubts about them are over, and
// who was expected has come. Those of them that are not linked to this node, even
// after a while, are lost. The links to all others end, but for nodes that are still
// expected. If ctx ends while they may still come, its cause is the error, and the
// view is not adopted: that says nothing of them.
func (m *Mesh) Adopt(ctx context.Context, v member.View) error {
	if err := m.settle(ctx, v); err != nil {
		return err
	}
	m.mu.Lock()
	m.view = v
	for rank, n := range v.Nodes {
		seat, ok := m.seatOf(n.ID)
		if !ok {
			seat = m.seat(n, rank)
		}
		m.ranks[seat] = rank
		delete(m.expected, seat)
	}
	seats := len(m.nodes)
	m.mu.Unlock()
	for seat := range seats {
		m.adopt(seat, v)
	}
	return nil
}

// settle waits for links to the nodes of a view that were expected.
func (m *Mesh) settle(ctx context.Context, v member.View) error {
	patience := time.NewTimer(settlePatience)
	defer patience.Stop()
	for {
		m.mu.Lock()
		grown, missing := m.grown, 0
		for _, n := range v.Nodes {
			if seat, ok := m.seatOf(n.ID); ok && m.expected[seat] && m.links[seat] == nil {
				missing++
			}
		}
		m.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-grown:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// adopt is Adopt for one seat.
func (m *Mesh) adopt(seat int, v member.View) {
	m.mu.Lock()
	n, l, expected := m.nodes[seat], m.links[seat], m.expected[seat]
	m.mu.Unlock()
	_, stays := v.Rank(n.ID)
	switch {
	case expected:
	case !stays:
		m.apply(seat, member.AdoptedOut, news{err: errRemoved})
	case l == nil:
		m.apply(seat, member.AdoptedUnlinked, news{err: errUnlinked})
	default:
		m.apply(seat, member.AdoptedIn, news{})
	}
}

// drop gives up the link to a node that is not in the world any more.
func (m *Mesh) drop(seat int, l *link.Link) {
	if l == nil {
		return
	}
	m.mu.Lock()
	m.links[seat], m.routes[seat] = nil, nil
	m.part(l)
	if !m.closing {
		m.wg.Go(l.Abort)
	}
	m.mu.Unlock()
	m.engine.Forget(l)
}
