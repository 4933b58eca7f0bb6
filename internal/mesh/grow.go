package mesh

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// seat gives a node a seat. It is called with the lock held, or before anyone else
// has m.
func (m *Mesh) seat(n membership.Node, rank int) (seat int) {
	if len(m.free) > 0 {
		seat, m.free = m.free[0], m.free[1:]
		m.nodes[seat], m.ranks[seat] = n, rank
		m.states[seat], m.reports[seat] = membership.PeerLinked, nil
		return seat
	}
	m.nodes = append(m.nodes, n)
	m.ranks = append(m.ranks, rank)
	m.links = append(m.links, nil)
	m.routes = append(m.routes, nil)
	m.states = append(m.states, membership.PeerLinked)
	m.reports = append(m.reports, nil)
	return len(m.nodes) - 1
}

// seatOf is the seat of a node that has one. It is called with the lock held.
func (m *Mesh) seatOf(id membership.NodeID) (seat int, ok bool) {
	if id == (membership.NodeID{}) {
		return 0, false // as seats that are free have it
	}
	return membership.View{Nodes: m.nodes}.Rank(id)
}

// node is who has a seat.
func (m *Mesh) node(seat int) membership.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[seat]
}

// Expect lets nodes connect themselves to this one that are not in the view, but
// may be in the next. That they do not, or do it anew, is no failure, even if they have
// been linked to this node before.
func (m *Mesh) Expect(nodes []membership.Node) {
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
		m.states[seat], _ = m.states[seat].Next(membership.Expected)
		m.reports[seat] = nil
	}
}

// Forget undoes Expect for a node that does not come: its link ends, and its number is for
// another one, so that nodes that never enter take no memory. A node that has been in a
// view keeps its number.
func (m *Mesh) Forget(id membership.NodeID) {
	m.mu.Lock()
	seat, known := m.seatOf(id)
	forget := known && m.expected[seat] && m.ranks[seat] < 0
	var l *link.Link
	if forget {
		l = m.links[seat]
		delete(m.expected, seat)
	}
	m.mu.Unlock()
	if !forget {
		return
	}
	m.drop(seat, l)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parted, seat)
	m.nodes[seat] = membership.Node{}
	m.free = append(m.free, seat)
}

// dialBeside links this node to others that join as it does, before it. That one cannot be
// reached matters only to it and to this node, which are not let in together then.
func (m *Mesh) dialBeside(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, besidePatience)
	defer cancel()
	slots := make(chan struct{}, dialsMax)
	var dials sync.WaitGroup
	for seat := m.self - 1; seat >= 0 && !m.isRequired(seat); seat-- {
		dials.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := m.dial(ctx, seat); err != nil {
				m.log.Debug("no link to a node that joins as well", m.note(seat), "err", err)
			}
		})
	}
	dials.Wait()
}

// besidePatience is how long a node tries to reach others that join as it does.
const besidePatience = 2 * time.Second

// reportLink tells the session whether the link to a node that is expected stands.
func (m *Mesh) reportLink(seat int) {
	if m.cfg.Linked == nil {
		return
	}
	m.reporting.Lock()
	defer m.reporting.Unlock()
	m.mu.Lock()
	id, expected, up := m.nodes[seat].ID, m.expected[seat], m.links[seat] != nil
	m.mu.Unlock()
	if expected {
		m.cfg.Linked(id, up)
	}
}

// Beside returns the nodes that join as this one does and that it has links to.
func (m *Mesh) Beside() (ids []membership.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for seat, l := range m.links {
		if l != nil && seat != m.self && seat < m.cfg.View.Size() && !m.isRequired(seat) {
			ids = append(ids, m.nodes[seat].ID)
		}
	}
	return ids
}

var (
	// errRemoved is why links to nodes end that are not in the view any more.
	errRemoved = fmt.Errorf("%w: it is not in the world any more", transport.ErrPeerGone)
	// errUnlinked is what is wrong with a node of a view that has no link to this
	// one.
	errUnlinked = fmt.Errorf("%w: it has not connected to this node", transport.ErrPeerGone)
)

// settleDefault is Config.SettleTimeout where neither that nor HeartbeatTimeout is set.
const settleDefault = 5 * time.Second

// adoptTimeout is how long a node of a view may not be linked to this one. Those that
// watch it have confirmed their links before it was let in, so that others that wait are
// few: on a lossy network, the last packet of a handshake may come after several attempts.
func (m *Mesh) adoptTimeout() time.Duration {
	switch {
	case m.cfg.SettleTimeout > 0:
		return m.cfg.SettleTimeout
	case m.cfg.HeartbeatTimeout > 0:
		return m.cfg.HeartbeatTimeout
	}
	return settleDefault
}

// Adopt goes on with the nodes of a later view: doubts about them are over, and
// who was expected has come. Those of them that are not linked to this node, even
// after SettleTimeout, are lost. The links to all others end, but for nodes that are still
// expected. If ctx ends while they may still come, its cause is the error, and the
// view is not adopted: that says nothing of them.
func (m *Mesh) Adopt(ctx context.Context, v membership.View) error {
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
func (m *Mesh) settle(ctx context.Context, v membership.View) error {
	patience := time.NewTimer(m.adoptTimeout())
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
func (m *Mesh) adopt(seat int, v membership.View) {
	m.mu.Lock()
	n, l, expected := m.nodes[seat], m.links[seat], m.expected[seat]
	if n.ID == (membership.NodeID{}) {
		m.mu.Unlock()
		return // no node has this seat now
	}
	m.mu.Unlock()
	_, stays := v.Rank(n.ID)
	switch {
	case expected:
	case !stays:
		m.apply(seat, membership.AdoptedOut, news{err: errRemoved})
	case l == nil:
		m.apply(seat, membership.AdoptedUnlinked, news{err: errUnlinked})
	default:
		m.apply(seat, membership.AdoptedIn, news{})
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
