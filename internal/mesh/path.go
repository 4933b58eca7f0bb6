package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// A Path is a transport by which this node reaches others.
type Path struct {
	Transport transport.Transport
	// Name is what PathInfo calls it; the default is the transport's.
	Name string
	// Encrypted says that everything on this path is encrypted and authenticated.
	Encrypted bool
	// Bulk says that this path carries the data and bulk lanes of links whose
	// control lane is on another path between hosts, unless that is Alone.
	Bulk  bool
	Alone bool
	// Whole says that a path with Bulk also carries whole links, with nodes that
	// have none of the paths beside which it could be.
	Whole bool
	// Pipes is how many pipes the bulk lane has on a path with Bulk; 0 means 1.
	Pipes int
}

func (p *Path) name() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Transport.Name()
}

// local reports whether the path reaches nodes of this host alone.
func (p *Path) local() bool { return p.can().Locality != transport.AnyHost }

// isMain reports whether the path carries the control lanes of links beside which
// a path with Bulk can be.
func (p *Path) isMain() bool { return !p.Bulk && !p.Alone && !p.local() }

// carries reports whether a path carries whole links with a node. Both nodes come to
// the same result, since each knows the endpoints of the other.
func (m *Mesh) carries(p *Path, n membership.Node) bool {
	if _, has := n.Endpoint(p.Transport.Name()); !has || p.Bulk && !p.Whole {
		return false
	}
	return !p.Bulk || !slices.ContainsFunc(m.cfg.Paths, func(q Path) bool {
		_, has := n.Endpoint(q.Transport.Name())
		return has && q.isMain()
	})
}

// addrs are the addresses at which the transport of a path listens on a node.
func (p *Path) addrs(n membership.Node, reachable []string) (list []string) {
	e, _ := n.Endpoint(p.Transport.Name())
	switch {
	case e.Addr == "" && p.local():
		return []string{n.ID.String()}
	case e.Addr == "":
		return reachable
	}
	host, port, err := net.SplitHostPort(e.Addr)
	if ip, bad := netip.ParseAddr(host); err != nil || p.local() || host != "" && (bad != nil || !ip.IsUnspecified()) {
		return []string{e.Addr}
	}
	for _, a := range reachable {
		if host, _, err := net.SplitHostPort(a); err == nil && !slices.Contains(list, net.JoinHostPort(host, port)) {
			list = append(list, net.JoinHostPort(host, port))
		}
	}
	return list
}

func (p *Path) can() transport.Capabilities { return transport.CapabilitiesOf(p.Transport) }

// checkPaths refuses paths of which none carries whole links, or several have Bulk.
func checkPaths(paths []Path) error {
	whole, bulk := 0, 0
	for i := range paths {
		if paths[i].Bulk {
			bulk++
		} else {
			whole++
		}
	}
	if whole == 0 || bulk > 1 {
		return fmt.Errorf("mesh: %d paths for whole links and %d for bulk: at least one and at most one are needed", whole, bulk)
	}
	return nil
}

// bulkBeside is the path that carries the payloads of a link with a node whose
// control lane is on another path, or nil if that carries all.
func (m *Mesh) bulkBeside(main *Path, n membership.Node) *Path {
	for i := range m.cfg.Paths {
		p := &m.cfg.Paths[i]
		if _, has := n.Endpoint(p.Transport.Name()); p.Bulk && has && main.isMain() {
			return p
		}
	}
	return nil
}

// A PathInfo says how a node is reached, and why not otherwise.
type PathInfo struct {
	Rank int
	Node membership.NodeID
	// Addr is where its packets come from.
	Addr string
	// Link and Bulk are the names of the paths of the link, and of its bulk
	// lane. Class is that of the path which carries payloads, and Locality that of
	// the link.
	Link, Bulk string
	Class      transport.Class
	Locality   transport.Locality
	// Encrypted says that both are encrypted and authenticated.
	Encrypted bool
	// Why is a reason for people.
	Why string
}

// Paths says how the other nodes of a view are reached, in the order of their
// ranks there.
func (m *Mesh) Paths(v membership.View) (infos []PathInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rank, n := range v.Nodes {
		if i, ok := m.slotOf(n.ID); ok && i != m.self && m.peers[i].route != nil {
			infos = append(infos, m.peers[i].route.info(rank, n.ID))
		}
	}
	return infos
}

// Links are those to the nodes of a view, in the order of their ranks there. The
// error names one to whom there is none.
func (m *Mesh) Links(v membership.View) ([]*link.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	links := make([]*link.Link, v.Size())
	for rank, n := range v.Nodes {
		if i, ok := m.slotOf(n.ID); ok {
			links[rank] = m.peers[i].link
		}
		if links[rank] == nil {
			return nil, &UnreachableError{Rank: rank, Node: n.ID, Addrs: n.Addrs, Err: errUnlinked}
		}
	}
	return links, nil
}

// Traffic returns the byte counts of the links to the other nodes of a view, in the
// order of their ranks there.
func (m *Mesh) Traffic(v membership.View) (list []trace.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rank, n := range v.Nodes {
		i, ok := m.slotOf(n.ID)
		if !ok || i == m.self || m.peers[i].link == nil || m.peers[i].route == nil {
			continue
		}
		t := m.peers[i].link.Traffic()
		list = append(list, trace.Link{
			Rank: rank, Transport: m.peers[i].route.info(rank, n.ID).Bulk, Sent: t.Sent, Received: t.Received,
		})
	}
	return list
}

// Common is what the ways to all other nodes have in common: their name, or
// "mixed", and whether all of them are encrypted. Without others all is in
// this process.
func Common(paths []PathInfo) (name string, encrypted bool) {
	name, encrypted = "mem", len(paths) > 0
	for k, i := range paths {
		this := strings.TrimSuffix(i.Link, "+tls")
		if bulk := strings.TrimSuffix(i.Bulk, "+tls"); bulk != this {
			this += "+" + bulk
		}
		if k > 0 && this != name {
			this = "mixed"
		}
		name, encrypted = this, encrypted && i.Encrypted
	}
	return name, encrypted
}

// SameProcess reports whether all other nodes are in this process.
func SameProcess(paths []PathInfo) bool {
	return !slices.ContainsFunc(paths, func(i PathInfo) bool { return i.Locality != transport.SameProcess })
}

// A route is the connections to a node.
type route struct {
	peer  membership.NodeID // that has called this node; zero if this node has called
	path  *Path
	conn  transport.Conn
	bulk  *Path          // nil if the bulk lane has no connection of its own
	apart transport.Conn // that connection, where this node has made it
	why   string
}

func (r *route) info(rank int, id membership.NodeID) PathInfo {
	i := PathInfo{
		Rank: rank, Node: id, Addr: r.conn.RemoteAddr(), Link: r.path.name(), Bulk: r.path.name(),
		Class: r.path.can().Class, Locality: r.path.can().Locality, Encrypted: r.path.Encrypted, Why: r.why,
	}
	if r.bulk != nil {
		i.Bulk, i.Class = r.bulk.name(), r.bulk.can().Class
		i.Encrypted = i.Encrypted && r.bulk.Encrypted
	}
	return i
}

func (r *route) close() {
	r.conn.Close()
	if r.apart != nil {
		r.apart.Close()
	}
}

// whyNot says why a path to a node, which may be on this host, was not taken.
func (p *Path) whyNot(err error, sameHost bool) string {
	switch {
	case !errors.Is(err, transport.ErrNotLocal):
		if why := err.Error(); strings.HasPrefix(why, p.name()+": ") {
			return why
		}
		return fmt.Sprintf("%s: %v", p.name(), err)
	case sameHost:
		return "no " + p.name() + " there"
	}
	return "not on this host"
}
