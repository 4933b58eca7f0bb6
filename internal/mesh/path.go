package mesh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/transport"
)

// A Path is a way to reach other nodes.
type Path struct {
	Transport transport.Transport
	// Name is what PathInfo calls it; the default is the transport's.
	Name string
	// Encrypted says that what goes this way is encrypted and authenticated.
	Encrypted bool
	// NotHere, if not nil, says that this path reaches nodes of this host
	// alone. They are dialed by their IDs. Dial returns this error, at once,
	// for all others.
	NotHere error
	// Bulk says that this path carries nothing but the data and bulk lanes of links
	// that another path, which is not for this host alone, has made. It takes
	// the same addresses.
	Bulk bool
	// Pipes is how many pipes such a bulk lane has; 0 means 1.
	Pipes int
}

func (p *Path) name() string {
	if p.Name != "" {
		return p.Name
	}
	return p.Transport.Name()
}

func (p *Path) can() transport.Capabilities { return transport.CapabilitiesOf(p.Transport) }

// checkPaths finds paths that make no sense together.
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

// bulkPath is the path for bulk, or nil.
func (m *Mesh) bulkPath() *Path {
	for i := range m.cfg.Paths {
		if p := &m.cfg.Paths[i]; p.Bulk {
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
			Rank: rank, Over: m.peers[i].route.info(rank, n.ID).Bulk, Sent: t.Sent, Received: t.Received,
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
		this := i.Link
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
	case p.NotHere == nil || !errors.Is(err, p.NotHere):
		if why := err.Error(); strings.HasPrefix(why, p.name()+": ") {
			return why
		}
		return fmt.Sprintf("%s: %v", p.name(), err)
	case sameHost:
		return "no " + p.name() + " there"
	}
	return "not on this host"
}
