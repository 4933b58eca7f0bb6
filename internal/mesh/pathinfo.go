package mesh

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// A PathInfo describes the connections to a node.
type PathInfo struct {
	Rank int
	Node membership.NodeID
	// Addr is the source address of packets from the node. It is empty if relays are between.
	Addr string
	// Transport is the name of the path with the control lane, and Locality the locality of that
	// path. BulkTransport is the name of the path with the bulk lane, and Class the class of that
	// path. Both paths may be the same.
	Transport, BulkTransport string
	Class                    transport.Class
	Locality                 transport.Locality
	// DeviceMemory is that of the link: see [link.Link.DeviceMemory].
	DeviceMemory string
	// Encrypted reports whether both paths are encrypted and authenticated.
	Encrypted bool
	// Reason explains the choice of the paths.
	Reason string
	// Pending reports whether there is no connection yet, or one that is so new that the mesh has not noted it, although it may have carried
	// frames. The paths are those that this node would try first.
	Pending bool
	// Hops is the number of links that a frame to the node passes: 1 unless relays are between.
	Hops int
	// Relay is the rank of the first relay in the adopted view if Hops is more than 1.
	Relay int
	// Delay is the round trip over relays, or 0 if it is not known.
	Delay time.Duration
	// Lost is the number of packets to the peer over relays that were lost. It begins at 0 with each connection.
	Lost uint64
	// Unacknowledged is that of the link: see [link.Link.Unacknowledged].
	Unacknowledged int
	// Purpose is a word for the reason of the connection; see describer.purpose. It is "" if Pending.
	Purpose string
}

// Paths describes the connections to the other nodes of a view, in the order of their ranks.
func (m *Mesh) Paths(v membership.View) []PathInfo {
	infos := make([]PathInfo, 0, v.Size())
	for i := range m.eachPath(v) {
		infos = append(infos, *i)
	}
	return infos
}

// eachPath yields the elements of Paths. It holds a lock of the mesh meanwhile. An element is valid until the next one.
func (m *Mesh) eachPath(v membership.View) iter.Seq[*PathInfo] {
	return func(yield func(*PathInfo) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		d := m.describerLocked()
		var i PathInfo
		for rank, p := range m.peersInLocked(v) {
			if d.describe(&i, rank, p) && !yield(&i) {
				return
			}
		}
	}
}

// Traffic returns the byte counts of the links to the other nodes of a view, in the order of their ranks: of those that have a connection, or had
// and need one.
func (m *Mesh) Traffic(v membership.View) (list []trace.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.describerLocked()
	for rank, p := range m.peersInLocked(v) {
		if p.route != nil || p.broken != nil && p.isPending() {
			list = append(list, d.traffic(rank, p))
		}
	}
	return list
}

// Dials returns the number of attempts to connect to other nodes, and of those that have failed.
func (m *Mesh) Dials() (all, failed uint64) { return m.dialer.dialed.Load(), m.dialer.undialed.Load() }

// peersInLocked yields the other nodes of a view that have slots, and their ranks in the view.
func (m *Mesh) peersInLocked(v membership.View) iter.Seq2[int, *peer] {
	return func(yield func(int, *peer) bool) {
		for rank := range v.Nodes {
			if slot, ok := m.slots[v.Nodes[rank].ID]; ok && slot != m.self && !yield(rank, &m.peers[slot]) {
				return
			}
		}
	}
}

// A describer describes the connections of peers. The lock of the mesh guards the peers.
type describer struct {
	reach   *Reach
	routes  *topology.Routes // in the adopted view; nil in the full topology
	watches []int            // the ranks that this node watches, and those that watch it
	last    expectedPath     // to the node without a connection before this one
}

func (m *Mesh) describerLocked() describer {
	d := describer{reach: m.reach, watches: m.watchRanksLocked()}
	if !m.cfg.Topology.IsFull() {
		d.routes = m.cfg.Topology.Graph(m.view.Size()).Routes(m.peers[m.self].rank, topology.Broken{})
	}
	return d
}

// describe sets i to the description of the path to a peer. It reports false if there is none.
func (d *describer) describe(i *PathInfo, rank int, p *peer) bool {
	switch {
	case p.route != nil:
		*i = p.route.info(rank, p.node.ID)
		i.Purpose = d.purpose(p)
	case p.link == nil:
		return false
	default:
		if d.last.to(d.reach, p.node); !d.last.ok {
			return false
		}
		*i = d.last.info
		i.Rank, i.Node, i.Pending = rank, p.node.ID, true
	}
	if p.link != nil {
		i.DeviceMemory, i.Unacknowledged = p.link.DeviceMemory.String(), p.link.Unacknowledged()
	}
	d.addHops(i, p.rank)
	return true
}

// purpose returns a word for the reason why this node is linked to a peer: "watch" if one of
// the two watches the other one, the [link.Purpose] that this node has needed the link for, "peer" if
// the peer has needed it, or "eager" if this node has linked itself to all nodes.
func (d *describer) purpose(p *peer) string {
	switch {
	case p.rank >= 0 && slices.Contains(d.watches, p.rank):
		return link.Watching.String()
	case p.link != nil && p.link.Purpose() != link.NoPurpose:
		return p.link.Purpose().String()
	case p.route != nil && p.route.peer == p.node.ID:
		return "peer"
	}
	return link.Joining.String()
}

// traffic returns the byte counts of the link to a peer. They have no path while the connection is replaced.
func (d *describer) traffic(rank int, p *peer) trace.Link {
	var i PathInfo
	if p.route != nil {
		i = p.route.info(rank, p.node.ID)
		d.addHops(&i, p.rank)
	}
	t := p.link.Traffic()
	l := trace.Link{
		Rank: rank, Transport: i.BulkTransport, Purpose: d.purpose(p), Class: classNames[i.Class], Connections: p.link.Connections(),
		Sent: t.Sent, Received: t.Received, Relay: i.Relay, Delay: i.Delay, Lost: i.Lost,
		DeviceMemory: p.link.DeviceMemory.String(), Unacknowledged: uint64(p.link.Unacknowledged()),
	}
	if i.Hops > 1 {
		l.Hops = i.Hops
	}
	l.Stalls, l.Stalled = p.link.Stalls()
	return l
}

// addHops says in the description of the path to a rank of the adopted view how many hops it has, and the first relay.
func (d *describer) addHops(i *PathInfo, rank int) {
	if i.Hops = 1; d.routes == nil {
		return
	}
	if i.Hops = d.routes.Hops(rank); i.Hops > 1 {
		i.Relay = d.routes.To(rank).Next
		i.Reason = fmt.Sprintf("not a neighbor: %d hops, the first to rank %d", i.Hops, i.Relay)
	}
}

var classNames = [...]string{transport.ClassUnknown: "", transport.ClassMemory: "memory", transport.ClassTCP: "tcp", transport.ClassTLS: "tls", transport.ClassQUIC: "quic"}

func (r *route) info(rank int, id membership.NodeID) PathInfo {
	i := PathInfo{
		Rank: rank, Node: id, Transport: r.path.name(), BulkTransport: r.path.name(),
		Class: r.path.capabilities().Class, Locality: r.path.capabilities().Locality, Encrypted: r.path.Encrypted, Reason: r.why,
	}
	if r.conn != nil && !r.path.Relay {
		i.Addr = r.conn.RemoteAddr()
	}
	if c, ok := r.conn.(interface {
		Quality() (roundTrip time.Duration, lost uint64)
	}); ok && r.path.Relay {
		i.Delay, i.Lost = c.Quality()
	}
	if r.bulk != nil {
		i.BulkTransport, i.Class = r.bulk.name(), r.bulk.capabilities().Class
		i.Encrypted = i.Encrypted && r.bulk.Encrypted
	}
	return i
}

// An expectedPath is the path to a node without a connection. It is that of all nodes on the same host with the same
// transports that are neighbors, or of all that are not.
type expectedPath struct {
	node *membership.Node // nil before the first one
	near bool
	path *Path    // nil if there is none
	info PathInfo // without the fields of the node
	ok   bool     // there is a path, or no way to the node
}

// to makes e the path to a node. It is often that to the node before.
func (e *expectedPath) to(r *Reach, n *membership.Node) {
	near := r.isNear(n.ID)
	if e.isLike(n, near) {
		return
	}
	*e = expectedPath{node: n, near: near, ok: !r.canDial(n.ID)}
	if first := r.expectedRoute(n); first != nil {
		e.path, e.info, e.ok = first.path, first.info(0, membership.NodeID{}), true
	}
}

func (e *expectedPath) isLike(n *membership.Node, near bool) bool {
	sameTransport := func(a, b membership.Endpoint) bool { return a.Transport == b.Transport }
	return e.node != nil && e.near == near && e.node.Host == n.Host && slices.EqualFunc(e.node.Endpoints, n.Endpoints, sameTransport)
}
