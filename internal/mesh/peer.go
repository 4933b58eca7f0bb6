package mesh

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A peer is the content of a slot. Mesh.mu guards it. A node of a large world has one for each other node, so it is small.
type peer struct {
	node      *membership.Node // of the adopted view, if it is in that; not nil
	rank      int              // the latest; -1 before the first view with the node
	link      *link.Link       // nil if the node is no longer in the world
	route     *route           // of link
	accepting int              // accepted connections that may become the link

	membership.Peer
	relaying bool // the relay uses the link

	broken     error         // why the last connection of the pending link ended; nil if it has not, or is replaced
	failed     []pathFailure // of connections between hosts that broke, the latest one of each path and host; does not change in place
	fruitless  int           // connections in a row that have delivered nothing of what waited
	declined   int           // proposals of the peer since the link broke
	stuckSince time.Time     // the first of them has ended
	proposal   *route        // a connection that is being negotiated for the pending link, or nil
	report     error         // the first report of another node since the peer was linked
	reason     *blame.Reason // the last error that the peer has told, or nil
	loss       *LossError    // the last loss of the peer, or nil

	// processEnded reports whether the process of the peer has ended. It is nil until link
	// has ended.
	processEnded func() bool
}

func newPeer(n *membership.Node, rank int) peer {
	return peer{node: n, rank: rank}
}

// noteFailure notes that the connection of a route, which may be nil, has broken.
func (p *peer) noteFailure(r *route, err error) {
	if r != nil && r.path != nil && !r.path.isLocal() && !r.path.Relay && !errors.Is(err, transport.ErrPeerClosed) {
		f := pathFailure{r.path, r.conn.RemoteAddr(), err}
		if r.bulk != nil && link.IsOfBulk(err) {
			f.path = r.bulk
		}
		p.failed = append(slices.DeleteFunc(slices.Clone(p.failed), func(g pathFailure) bool { return g.path == f.path && g.host() == f.host() }), f)
		p.failed = p.failed[max(0, len(p.failed)-failedMax):]
	}
}

// failures returns how recently a path has failed, at one of the addresses: the larger the later. It is 0 if it has not.
func (p *peer) failures(path *Path, addrs ...string) int {
	for i, f := range slices.Backward(p.failed) {
		if f.path == path && slices.ContainsFunc(addrs, func(a string) bool { return hostOf(a) == f.host() }) {
			return i + 1
		}
	}
	return 0
}

// failedMax bounds the failures that are remembered: a peer may dial from any number of addresses.
const failedMax = 8

// fruitlessMax is the number of connections in a row that deliver nothing after which a link uses another address, and no second connection for
// bulk: the network may drop long packets alone, and pass handshakes and heartbeats.
const fruitlessMax = 2

// declinedMax bounds the proposals of the peer that a node declines for another path. The peer waits redialFirst before its second dial
// and twice that before the third, so this node has some tenths of a second for its own.
const declinedMax = 3

// isFruitless reports whether the last fruitlessMax connections have delivered nothing.
func (p *peer) isFruitless() bool { return p.fruitless >= fruitlessMax }

// declines reports whether this node declines a proposal of the peer: the last connections have delivered nothing, and the proposal is for the path
// that failed last, or may use it for bulk. After declinedMax proposals it accepts one, since the peer may reach this node over that path alone.
func (m *Mesh) declines(slot int, r *route, bulk *Path) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[slot]
	last := max(p.failures(r.path, r.conn.RemoteAddr()), p.failures(bulk, r.conn.RemoteAddr()))
	if n := len(p.failed); n == 0 || !p.isFruitless() || last < n || p.declined == declinedMax {
		return false
	}
	p.declined++
	return true
}

// noteDelivery notes what the connection before that of a route has delivered. The error ends the link: for limit, no connection has delivered anything.
func (p *peer) noteDelivery(r *route, d link.Delivery, limit time.Duration) error {
	switch {
	case d.Stuck == 0 || r.isRelayed():
		p.fruitless = 0
		return nil
	case p.fruitless == 0:
		p.stuckSince = time.Now()
	}
	p.fruitless++
	still, over := time.Since(p.stuckSince), r.path
	if !p.isFruitless() || limit <= 0 || still < limit {
		return nil
	}
	if d.Lane != wire.Control && r.bulk != nil {
		over = r.bulk
	}
	return fmt.Errorf("%w: %d connections in a row, the last one over %s to %s, have delivered none of %d bytes for %v, although the node accepts connections; "+
		"the network may drop long packets: compare the MTU of both hosts with that of the network between them",
		transport.ErrPeerGone, p.fruitless, over.name(), r.conn.RemoteAddr(), d.Stuck, still.Round(time.Millisecond))
}

// explain makes the last failure of another path the reason for a route.
func (p *peer) explain(r *route) {
	for _, f := range slices.Backward(p.failed) {
		if f.path != r.path && f.path != r.bulk {
			r.why = f.why()
			return
		}
	}
}

// unreachable returns the error for a peer without a link.
func (p *peer) unreachable(err error) *UnreachableError {
	return &UnreachableError{Rank: p.rank, Node: p.node.ID, Addrs: p.node.Addrs, Err: err}
}

// noteEndLocked sets processEnded of the peer of a link. The peer may have attached the memory of this node without a
// connection.
func (m *Mesh) noteEndLocked(l *link.Link) {
	p := &m.peers[l.Peer]
	if p.processEnded != nil {
		return
	}
	if s := l.MemorySharer(); s != nil {
		p.processEnded = s.PeerEnded()
	} else if s := m.reach.HostMemory(membership.View{Nodes: []membership.Node{*p.node}}); s != nil {
		p.processEnded = s.PeerEnded(p.node.ID.String())
	}
}

// hasLeft is peer.processEnded after a goodbye.
func hasLeft() bool { return true }

// addPeerLocked gives a node a slot. The node must not change.
func (m *Mesh) addPeerLocked(n *membership.Node, rank int) (slot int) {
	if len(m.free) == 0 {
		slot = len(m.peers)
		m.peers = append(m.peers, newPeer(n, rank))
	} else {
		slot, m.free = m.free[0], m.free[1:]
		m.peers[slot] = newPeer(n, rank)
	}
	m.slots[n.ID] = slot
	m.addPendingLocked(slot)
	return slot
}

// slotOfLocked returns the slot of a node.
func (m *Mesh) slotOfLocked(id membership.NodeID) (slot int, ok bool) {
	slot, ok = m.slots[id]
	return slot, ok
}

// peer returns a copy of the content of a slot.
func (m *Mesh) peer(slot int) peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[slot]
}

// linksLocked returns the links of the other nodes that are selected.
func (m *Mesh) linksLocked(selects func(p *peer) bool) (links []*link.Link) {
	for slot := range m.peers {
		if p := &m.peers[slot]; slot != m.self && p.link != nil && selects(p) {
			links = append(links, p.link)
		}
	}
	return links
}

// Expect makes the mesh accept connections from nodes that are not in the view but may be in the
// next one. They do not count as failed if they never connect, connect again, or lose their
// link to this node.
func (m *Mesh) Expect(nodes []membership.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if _, in := m.view.Rank(n.ID); in {
			continue
		}
		slot, known := m.slotOfLocked(n.ID)
		if !known {
			slot = m.addPeerLocked(&n, -1)
		}
		p := &m.peers[slot]
		if p.link == nil || p.State.IsGone() { // It joins again.
			m.dropLinkLocked(slot)
			m.addPendingLocked(slot)
		}
		p.report = nil
		p.Peer, _ = p.Next(membership.Expected, 0)
	}
}

// Forget undoes Expect for a node that does not join: it ends the link to the node and frees its
// slot, so that nodes that never join take no memory. It ignores a node that has been in a view.
func (m *Mesh) Forget(id membership.NodeID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, known := m.slotOfLocked(id)
	if !known || m.peers[slot].State.IsMember() || m.peers[slot].rank >= 0 {
		return
	}
	l := m.peers[slot].link
	m.peers[slot] = peer{node: new(membership.Node)} // From now on the end of l is ignored.
	delete(m.slots, id)
	switch {
	case l == nil, !l.IsUsed():
		m.free = append(m.free, slot)
	case !m.closing:
		m.wg.Go(func() {
			m.discard(l)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.free = append(m.free, slot) // No frame refers to the slot now.
		})
	}
}

// dropLinkLocked removes the link of a peer that is no longer in the world from its slot and
// ends it.
func (m *Mesh) dropLinkLocked(slot int) {
	if l := m.takeLinkLocked(slot); l != nil {
		m.discardLater(l)
	}
}

// takeLinkLocked removes the link of a peer that is no longer in the world from its slot. The caller ends it. It returns nil if there is none, or
// if the end of the mesh ends it.
func (m *Mesh) takeLinkLocked(slot int) *link.Link {
	p := &m.peers[slot]
	l := p.link
	if l == nil {
		return nil
	}
	p.link, p.route, p.relaying = nil, nil, false
	m.noteEndLocked(l)
	if m.closing {
		return nil
	}
	return l
}

// discardLater ends a link outside slots.
func (m *Mesh) discardLater(l *link.Link) { m.wg.Go(func() { m.discard(l) }) }

// reportLink reports to the session with the seed whether the link to an expected node is up.
func (m *Mesh) reportLink(slot int) {
	m.loop.post(func() func() { return m.linkReportLocked(slot) })
}

// linkReportLocked returns the function that reports whether the link to an expected node is up, or nil.
func (m *Mesh) linkReportLocked(slot int) func() {
	p := &m.peers[slot]
	if p.State.IsMember() || m.cfg.Linked == nil {
		return nil
	}
	id, up := p.node.ID, p.isLinked()
	return func() { m.cfg.Linked(id, up) }
}

// note describes the node of a slot in a log line.
func (m *Mesh) note(slot int) slog.Attr {
	p := m.peer(slot)
	return describe(p.rank, *p.node)
}

func describe(rank int, n membership.Node) slog.Attr {
	return slog.Group("node", "rank", rank, "id", n.ID.String(), "addr", list(n.Addrs))
}

func list(addrs []string) string {
	if len(addrs) == 0 {
		return "no address"
	}
	return strings.Join(addrs, ", ")
}
