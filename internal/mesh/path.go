package mesh

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
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

// isOwn reports whether this node has dialed.
func (r *route) isOwn() bool { return r.peer == membership.NodeID{} }

// isRelayed reports whether a route goes through relays. The route may be nil.
func (r *route) isRelayed() bool { return r != nil && r.path != nil && r.path.Relay }

func (r *route) close() {
	r.conn.Close()
	if r.second != nil {
		r.second.Close()
	}
}
