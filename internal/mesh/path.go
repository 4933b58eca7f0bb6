package mesh

import (
	"context"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// A Path is a transport to other nodes.
type Path struct {
	Transport transport.Transport
	// Name is the name of the path in a PathInfo; the default is the transport's.
	Name string
	// Encrypted says that all bytes on this path are encrypted and authenticated.
	Encrypted bool
	// Bulk makes this path carry the data and bulk lanes of links, beside another path between
	// hosts that carries the control lane.
	Bulk bool
	// Alone makes a path without Bulk carry all lanes of its links, even beside a path with Bulk.
	Alone bool
	// Whole makes a path with Bulk carry all lanes of the links to nodes that lack a path for
	// the control lane.
	Whole bool
	// Relay makes this path carry all lanes of the links to nodes that are not neighbors in the topology, and
	// no others. Its transport passes frames on over the links to neighbors.
	Relay bool
	// Pipes is the number of pipes of the bulk lane on a path with Bulk; 0 means 1.
	Pipes int
}

func (p *Path) name() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Transport.Name()
}

func (p *Path) capabilities() transport.Capabilities { return transport.CapabilitiesOf(p.Transport) }

// isLocal reports whether the path reaches nodes of this host alone.
func (p *Path) isLocal() bool { return p.capabilities().Locality != transport.AnyHost }

// isMain reports whether links with the control lane on this path can have a second connection
// on a path with Bulk.
func (p *Path) isMain() bool { return !p.Bulk && !p.Alone && !p.Relay && !p.isLocal() }

// isOf reports whether a node listens on the transport of the path.
func (p *Path) isOf(n *membership.Node) bool {
	_, has := n.Endpoint(p.Transport.Name())
	return has
}

// refuses reports whether a dial to a node fails at once on the path if the process of the node has ended.
func (p *Path) refuses(n *membership.Node) bool {
	return p.isOf(n) && !p.isLocal() && !p.capabilities().Silent
}

// addrs returns the addresses at which the transport of a path listens on a node.
func (p *Path) addrs(n *membership.Node, reachable []string) (list []string) {
	e, _ := n.Endpoint(p.Transport.Name())
	switch {
	case p.Relay, e.Addr == "" && p.isLocal():
		return []string{n.ID.String()}
	case e.Addr == "":
		return reachable
	}
	host, port, err := net.SplitHostPort(e.Addr)
	if ip, bad := netip.ParseAddr(host); err != nil || p.isLocal() || host != "" && (bad != nil || !ip.IsUnspecified()) {
		return []string{e.Addr}
	}
	for _, a := range reachable {
		if host, _, err := net.SplitHostPort(a); err == nil && !slices.Contains(list, net.JoinHostPort(host, port)) {
			list = append(list, net.JoinHostPort(host, port))
		}
	}
	return list
}

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
	// Altered and Repeated count the frames of the peer over relays that this node has dropped: those that were altered or
	// forged on their path, and those that had arrived before. They begin at 0 with each connection.
	Altered, Repeated uint64
	// Unacknowledged is that of the link: see [link.Link.Unacknowledged].
	Unacknowledged int
	// Purpose is a word for the reason of the connection; see [Mesh.purposeLocked]. It is "" if Pending.
	Purpose string
}

// Paths describes the connections to the other nodes of a view, in the order of their ranks.
func (m *Mesh) Paths(v membership.View) []PathInfo {
	infos := make([]PathInfo, 0, v.Size())
	for i := range m.EachPath(v) {
		infos = append(infos, *i)
	}
	return infos
}

// EachPath yields the elements of Paths. It holds a lock of the mesh meanwhile. An element is valid until the next one.
func (m *Mesh) EachPath(v membership.View) iter.Seq[*PathInfo] {
	return func(yield func(*PathInfo) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		routes, watches := m.routesLocked(), m.watchRanksLocked()
		var i PathInfo
		var last expectedPath
		for rank := range v.Nodes {
			n := &v.Nodes[rank]
			slot, ok := m.slotOfLocked(n.ID)
			if !ok || slot == m.self || !m.pathLocked(&i, slot, rank, n, watches, &last) {
				continue
			}
			if l := m.peers[slot].link; l != nil {
				i.DeviceMemory, i.Unacknowledged = l.DeviceMemory(), l.Unacknowledged()
			}
			i.addHops(routes, m.peers[slot].rank)
			if !yield(&i) {
				return
			}
		}
	}
}

// pathLocked sets i to the description of the path to the node in a slot. It reports false if there is none. last is that of the
// node without a link before this one.
func (m *Mesh) pathLocked(i *PathInfo, slot, rank int, n *membership.Node, watches []int, last *expectedPath) bool {
	switch p := &m.peers[slot]; {
	case p.route != nil:
		*i = p.route.info(rank, n.ID)
		i.Purpose = m.purposeLocked(p, watches)
		return true
	case p.link != nil:
		if near := m.reach.isNear(n.ID); !last.isLike(n, near) {
			*last = m.expectedPathLocked(n, near)
		}
		*i = last.info
		i.Rank, i.Node, i.Pending = rank, n.ID, true
		return last.ok
	}
	return false
}

// An expectedPath is the description of the path to a node without a link. It is that of all nodes on the same host with the same
// transports that are neighbors, or of all that are not.
type expectedPath struct {
	node *membership.Node // nil before the first one
	near bool
	info PathInfo // without the fields of the node
	ok   bool
}

func (e *expectedPath) isLike(n *membership.Node, near bool) bool {
	sameTransport := func(a, b membership.Endpoint) bool { return a.Transport == b.Transport }
	return e.node != nil && e.near == near && e.node.Host == n.Host && slices.EqualFunc(e.node.Endpoints, n.Endpoints, sameTransport)
}

func (m *Mesh) expectedPathLocked(n *membership.Node, near bool) expectedPath {
	e := expectedPath{node: n, near: near, ok: true}
	if r, ok := m.reach.expectedRoute(n); ok {
		e.info = r.info(0, membership.NodeID{})
	} else {
		e.ok = !m.reach.canDial(n.ID)
	}
	return e
}

// purposeLocked returns a word for the reason why this node is linked to a peer: "watch" if one of
// the two watches the other one, the [link.Purpose] that this node has needed the link for, "peer" if
// the peer has needed it, or "eager" if this node has linked itself to all nodes. watches is the result
// of watchRanksLocked.
func (m *Mesh) purposeLocked(p *peer, watches []int) string {
	switch {
	case p.rank >= 0 && slices.Contains(watches, p.rank):
		return link.Watching.String()
	case p.link != nil && p.link.Purpose() != link.NoPurpose:
		return p.link.Purpose().String()
	case p.route != nil && p.route.peer == p.node.ID:
		return "peer"
	}
	return link.Joining.String()
}

// Traffic returns the byte counts of the links to the other nodes of a view, in the order of
// their ranks.
func (m *Mesh) Traffic(v membership.View) (list []trace.Link) {
	var watches []int
	var routes *topology.Routes
	for rank, p := range m.linked(v) {
		if watches == nil {
			watches, routes = m.watchRanksLocked(), m.routesLocked()
		}
		var i PathInfo // zero while the connection is replaced
		if p.route != nil {
			i = p.route.info(rank, p.node.ID)
			i.addHops(routes, p.rank)
		}
		t := p.link.Traffic()
		list = append(list, trace.Link{
			Rank: rank, Transport: i.BulkTransport, Purpose: m.purposeLocked(p, watches), Class: classNames[i.Class], Connections: p.link.Connections(),
			Sent: t.Sent, Received: t.Received, Relay: i.Relay, Delay: i.Delay,
			Altered: i.Altered, Repeated: i.Repeated, DeviceMemory: p.link.DeviceMemory(),
		})
		if i.Hops > 1 {
			list[len(list)-1].Hops = i.Hops
		}
		last := &list[len(list)-1]
		last.Stalls, last.Stalled = p.link.Stalls()
		last.Unacknowledged = uint64(p.link.Unacknowledged())
	}
	return list
}

var classNames = [...]string{transport.ClassUnknown: "", transport.ClassMemory: "memory", transport.ClassTCP: "tcp", transport.ClassTLS: "tls", transport.ClassQUIC: "quic"}

// Dials returns the number of attempts to connect to other nodes, and of those that have failed.
func (m *Mesh) Dials() (all, failed uint64) { return m.dialer.dialed.Load(), m.dialer.undialed.Load() }

// linked yields the other nodes of a view with a link to this node that has a connection, or had and needs one, and their ranks in the
// view. It holds m.mu meanwhile.
func (m *Mesh) linked(v membership.View) iter.Seq2[int, *peer] {
	return func(yield func(int, *peer) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for rank, n := range v.Nodes {
			slot, ok := m.slotOfLocked(n.ID)
			if !ok {
				continue
			}
			p := &m.peers[slot]
			if isReplaced := p.broken != nil && p.isPending(); (p.route != nil || isReplaced) && !yield(rank, p) {
				return
			}
		}
	}
}

// Links returns the links to the nodes of a view, in the order of their ranks. The error names
// a node without a link.
func (m *Mesh) Links(v membership.View) ([]*link.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	links := make([]*link.Link, v.Size())
	for rank, n := range v.Nodes {
		if slot, ok := m.slotOfLocked(n.ID); ok {
			links[rank] = m.peers[slot].link
		}
		if links[rank] == nil {
			return nil, &UnreachableError{Rank: rank, Node: n.ID, Addrs: n.Addrs, Err: errUnlinked}
		}
	}
	return links, nil
}

// Common returns the name that all paths have, or "mixed", and whether all of them are encrypted.
// Without paths the name is "mem", since all ranks are in this process.
func Common(paths iter.Seq[*PathInfo]) (name string, encrypted bool) {
	name, encrypted = "mem", true
	some := false
	for i := range paths {
		this := strings.TrimSuffix(i.Transport, "+tls")
		if bulk := strings.TrimSuffix(i.BulkTransport, "+tls"); bulk != this {
			this += "+" + bulk
		}
		if some && this != name {
			this = "mixed"
		}
		name, encrypted, some = this, encrypted && i.Encrypted, true
	}
	return name, encrypted && some
}

// SameProcess reports whether all other nodes are in this process.
func SameProcess(paths iter.Seq[*PathInfo]) bool {
	for i := range paths {
		if i.Locality != transport.SameProcess {
			return false
		}
	}
	return true
}

// A route is the connections to a node.
type route struct {
	peer   membership.NodeID // the dialing peer; zero if this node has dialed
	path   *Path
	conn   transport.Conn
	bulk   *Path          // nil if the bulk lane has no separate connection
	second transport.Conn // the separate connection, if this node has dialed
	why    string
	// giveUp ends the proposal of the route, unless the link uses the connection already. It is set before the proposal begins.
	giveUp context.CancelCauseFunc
	// unproposed closes an accepted connection that the peer does not propose in time; nil if there is no limit.
	unproposed *time.Timer
}

// isRelayed reports whether a route goes through relays. The route may be nil.
func (r *route) isRelayed() bool { return r != nil && r.path != nil && r.path.Relay }

func (r *route) info(rank int, id membership.NodeID) PathInfo {
	i := PathInfo{
		Rank: rank, Node: id, Transport: r.path.name(), BulkTransport: r.path.name(),
		Class: r.path.capabilities().Class, Locality: r.path.capabilities().Locality, Encrypted: r.path.Encrypted, Reason: r.why,
	}
	if r.conn != nil && !r.path.Relay {
		i.Addr = r.conn.RemoteAddr()
	}
	if c, ok := r.conn.(interface{ RoundTrip() time.Duration }); ok && r.path.Relay {
		i.Delay = c.RoundTrip()
	}
	if c, ok := r.conn.(interface {
		Rejected() (altered, repeated uint64)
	}); ok && r.path.Relay {
		i.Altered, i.Repeated = c.Rejected()
	}
	if r.bulk != nil {
		i.BulkTransport, i.Class = r.bulk.name(), r.bulk.capabilities().Class
		i.Encrypted = i.Encrypted && r.bulk.Encrypted
	}
	return i
}

func (r *route) close() {
	r.conn.Close()
	if r.second != nil {
		r.second.Close()
	}
}
