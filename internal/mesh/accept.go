package mesh

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// chosenByPeer is the reason for the path of a link that the peer has dialed.
const chosenByPeer = "chosen by the node that dialed"

// relayedProposal is the longest time that a connection through relays waits for the proposal of the peer while the link has another one.
const relayedProposal = 5 * time.Second

// An acceptor accepts connections, and holds them until a link uses them. It knows the peers by caller alone, and takes no lock of the mesh.
type acceptor struct {
	reach         *Reach
	common        *link.Common
	log           *slog.Logger
	run           context.Context // of the mesh
	wg            *sync.WaitGroup // of the mesh
	answerTimeout time.Duration
	// caller returns what the mesh knows of a node. connect makes a link of a connection of the peer in a slot, beside other work. bulk is the path
	// of the second connection, or nil.
	caller  func(membership.NodeID) caller
	connect func(r *route, slot int, bulk *Path)

	conns   *connSet[acceptedKey]       // connections without a link
	seconds *connSet[membership.NodeID] // second connections, for links to come
}

// An acceptedKey identifies an accepted connection that has no link yet: a peer has at most one
// on each path.
type acceptedKey struct {
	path *Path
	peer membership.NodeID
}

// A caller is the node at the other end of an accepted connection.
type caller struct {
	slot    int
	peer    peer // a copy
	isPeer  bool // it has a slot, and is not this node
	closing bool // this node leaves
	// reportLeaving tells the seed that this node leaves, if a peer has to know why it is refused.
	reportLeaving func()
}

// mayLink reports whether the link to the caller may use a connection.
func (c *caller) mayLink() bool {
	return c.peer.isSettling() && (!c.closing || c.peer.link.IsNeeded())
}

// accept accepts connections on a path until the mesh closes, and refuses those that are not acceptable.
func (a *acceptor) accept(p *Path) {
	for {
		conn, err := p.Transport.Accept(a.run)
		if err != nil {
			return
		}
		id, _ := membership.ParseNodeID(conn.Peer()) // No peer has the zero ID.
		r, c := &route{path: p, conn: conn, peer: id}, a.caller(id)
		switch {
		case !c.isPeer:
			a.log.Warn("refused a connection", "path", p.name(), "from", conn.RemoteAddr(), "peer", conn.Peer())
			a.refuse(r, &c)
		case !c.mayLink():
			a.acceptAgain(r, &c)
		case !p.Relay && c.peer.State.IsMember() && !a.reach.mayAccept(id):
			conn.Close() // The views of both nodes differ.
		case p.Bulk && !a.reach.carries(p, c.peer.node):
			a.seconds.put(id, conn)
			if c.peer.broken != nil {
				a.wg.Go(func() { a.acceptAlone(r) })
			}
		default:
			a.start(r, &c)
		}
	}
}

// acceptAlone accepts a connection for bulk for all lanes if that of the link broke, and the peer has made no other one within acceptingCheck.
func (a *acceptor) acceptAlone(r *route) {
	select {
	case <-time.After(acceptingCheck):
	case <-a.run.Done():
		return
	}
	if c := a.caller(r.peer); c.peer.broken != nil && c.peer.isPending() && c.peer.accepting == 0 && a.seconds.remove(r.peer, r.conn) {
		a.start(r, &c)
	}
}

// acceptAgain handles a connection of a node that may dial, although its link has a connection or this node leaves: both nodes have dialed at
// the same time, or the peer has lost the connection of the link. The proposal over the new connection says so, and replaces that of the link.
// This node waits for it for half of the answerTimeout, and for relayedProposal through relays.
//
// If this node leaves, and closes and refuses a direct connection of a peer, of a neighbor that dials again as well, it tells the seed that it
// leaves. No relay has carried its goodbye to a new neighbor, which will report this node as lost: the seed would have to remove one of two
// living nodes. A connection that this node accepted before it closed, and that the negotiation refuses, causes no report: the peer dials again.
func (a *acceptor) acceptAgain(r *route, c *caller) {
	if c.reportLeaving != nil && !r.path.Relay && !r.path.Bulk {
		a.wg.Go(c.reportLeaving)
	}
	if r.path.Bulk && !a.reach.carries(r.path, c.peer.node) {
		a.seconds.put(r.peer, r.conn) // beside a connection that may replace that of the link
		return
	}
	if l := c.peer.link; l == nil || l.IsPending() || l.IsOver() {
		a.refuse(r, c)
		return
	}
	r.unproposed = time.AfterFunc(a.proposalTimeout(r), func() { r.conn.Close() })
	a.start(r, c)
}

// proposalTimeout returns the longest time that a connection which this node does not need waits for the proposal of the peer.
func (a *acceptor) proposalTimeout(r *route) time.Duration {
	if r.path.Relay {
		return relayedProposal
	}
	return a.answerTimeout / 2
}

// refuse reads the proposal of a connection that this node cannot use, and closes it: see [link.Common.Refuse]. If this node leaves, it does not say that
// the link has ended, unless it has read the goodbye of the peer: the peer would take it for failed, and soon learns that it leaves.
func (a *acceptor) refuse(r *route, c *caller) {
	l := c.peer.link
	if l != nil && (l.IsPending() && !l.IsOver() || c.closing && !l.HasLeft()) {
		r.conn.Close() // The peer will propose another one.
		return
	}
	a.conns.put(acceptedKey{r.path, r.peer}, r.conn)
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.run, a.proposalTimeout(r))
		defer cancel()
		a.common.Refuse(ctx, r.conn, l)
		a.take(r)
		r.conn.Close()
	})
}

// start makes a link of a connection as soon as the peer begins one.
func (a *acceptor) start(r *route, c *caller) {
	bulk := a.reach.bulkBeside(r.path, c.peer.node)
	r.why = chosenByPeer
	if r.path.isLocal() {
		r.why = "same host"
	} else if bulk != nil {
		r.why += ", without " + bulk.name()
	}
	a.conns.put(acceptedKey{r.path, r.peer}, r.conn) // in the order of acceptance
	a.connect(r, c.slot, bulk)
}

// take takes the connection of a route for a link, and reports whether it was there: another one may have replaced it.
func (a *acceptor) take(r *route) bool { return a.conns.remove(acceptedKey{r.path, r.peer}, r.conn) }

// takeSecond waits for the second connection of a route.
func (a *acceptor) takeSecond(ctx context.Context, r *route, bulk *Path) (transport.Conn, error) {
	r.bulk, r.why = bulk, chosenByPeer
	return a.seconds.take(ctx, r.peer)
}

// close closes the connections without a link.
func (a *acceptor) close() {
	a.conns.close()
	a.seconds.close()
}

// caller returns what is known of the node at the other end of a connection.
func (m *Mesh) caller(id membership.NodeID) (c caller) {
	m.mu.Lock()
	isFormed := m.formed && !m.closing
	m.mu.Unlock()
	if m.cfg.Relay != nil && isFormed {
		m.updateNear() // The node may be a neighbor in the newest view.
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	slot, known := m.slots[id]
	if !known {
		return c
	}
	c = caller{slot: slot, peer: m.peers[slot], isPeer: slot != m.self, closing: m.closing}
	if m.closing && m.cfg.Relay != nil {
		c.reportLeaving = m.reportLeaving
	}
	return c
}
