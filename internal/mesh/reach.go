package mesh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/transport"
)

// A Reach says to which nodes this node connects, over which paths and at which addresses. It knows the configuration of this node and its
// neighbors, and no links. Its methods may be called concurrently, and take no lock.
type Reach struct {
	self     membership.NodeID
	host     string // of this node, or empty
	seed     string // see Config.Seed
	paths    []Path // in the order of preference
	topology topology.Topology
	newest   func() membership.View // the newest view of the seed if it knows one
	near     atomic.Pointer[nearNodes]
}

// nearNodes are the nodes that this node may connect to without a relay, until others replace them.
type nearNodes struct {
	neighbors
	replaced chan struct{} // closed when others replace them
}

// newReach returns the Reach of a node. The node has no neighbors before setNear.
func newReach(cfg *Config) *Reach {
	r := &Reach{self: cfg.Self, seed: cfg.Seed, paths: cfg.Paths, topology: cfg.Topology, newest: cfg.Newest}
	if r.newest == nil {
		r.newest = func() membership.View { return membership.View{} }
	}
	if rank, in := cfg.View.Rank(cfg.Self); in {
		r.host = cfg.View.Nodes[rank].Host
	}
	return r
}

// checkPaths requires at least one path without Bulk and Relay, and at most one with Bulk.
func checkPaths(paths []Path) error {
	whole, bulk := 0, 0
	for _, p := range paths {
		switch {
		case p.Bulk:
			bulk++
		case !p.Relay:
			whole++
		}
	}
	if whole == 0 || bulk > 1 {
		return fmt.Errorf("mesh: %d paths without Bulk and %d with it: need at least one without and at most one with", whole, bulk)
	}
	return nil
}

// neighborsIn returns the neighbors of this node in a view.
func (r *Reach) neighborsIn(v membership.View) neighbors {
	if r.topology.IsFull() {
		return nil
	}
	near := make(neighbors)
	if rank, in := v.Rank(r.self); in {
		for _, other := range r.topology.Graph(v.Size()).Neighbors(rank) {
			near[v.Nodes[other].ID] = true
		}
	}
	return near
}

// setNear sets the neighbors for connections without a relay.
func (r *Reach) setNear(near neighbors) {
	if old := r.near.Load(); old != nil && maps.Equal(old.neighbors, near) {
		return
	}
	if old := r.near.Swap(&nearNodes{near, make(chan struct{})}); old != nil {
		close(old.replaced)
	}
}

// isNear reports whether this node may connect to a node without a relay: in the adopted view or, if there is a relay, in
// the newest one.
func (r *Reach) isNear(id membership.NodeID) bool { return r.near.Load().has(id) }

// mayAccept reports whether a node may connect to this one without a relay, in the adopted or in the newest view:
// the node may have adopted a view before this one.
func (r *Reach) mayAccept(id membership.NodeID) bool {
	return r.isNear(id) || r.neighborsIn(r.newest()).has(id)
}

var errNear = errors.New("mesh: the node has become a neighbor, and is dialed without relays")

// untilNear returns a context that ends with ctx, or when a node becomes a neighbor. The caller calls cancel.
func (r *Reach) untilNear(ctx context.Context, id membership.NodeID) (until context.Context, cancel context.CancelFunc) {
	until, end := context.WithCancelCause(ctx)
	go func() {
		for near := r.near.Load(); !near.has(id); near = r.near.Load() {
			select {
			case <-near.replaced:
			case <-until.Done():
				return
			}
		}
		end(errNear)
	}()
	return until, func() { end(nil) }
}

// hasRelay reports whether this node has a path to nodes that are not neighbors.
func (r *Reach) hasRelay() bool {
	return slices.ContainsFunc(r.paths, func(p Path) bool { return p.Relay })
}

// canDial reports whether there is a way to connect to a node.
func (r *Reach) canDial(id membership.NodeID) bool { return r.isNear(id) || r.hasRelay() }

// carries reports whether a path carries the control lane of a link with a node. Both nodes get the same
// result, since each knows the endpoints of the other.
func (r *Reach) carries(p *Path, n *membership.Node) bool {
	if p.Relay || !r.isNear(n.ID) {
		return p.Relay && !r.isNear(n.ID)
	}
	if !p.Bulk || !p.isOf(n) {
		return p.isOf(n)
	}
	return p.Whole && !slices.ContainsFunc(r.paths, func(q Path) bool { return q.isMain() && q.isOf(n) })
}

// bulkBeside returns the path of the data and bulk lanes of a link with a node and the control
// lane on main, or nil if main carries all lanes.
func (r *Reach) bulkBeside(main *Path, n *membership.Node) *Path {
	for i := range r.paths {
		if p := &r.paths[i]; p.Bulk && p.isOf(n) && main.isMain() {
			return p
		}
	}
	return nil
}

// addrs returns the addresses at which this node dials a path to another one.
func (r *Reach) addrs(p *Path, n *membership.Node) []string {
	return r.zoned(p.addrs(n, n.AddrsFrom(r.host)))
}

// reachable returns the addresses of a node that lead to it from this host.
func (r *Reach) reachable(n *membership.Node) []string { return r.zoned(n.AddrsFrom(r.host)) }

// zoned returns addresses with the zones of this host.
func (r *Reach) zoned(addrs []string) []string {
	list := slices.Clone(addrs)
	for i, a := range list {
		list[i] = eyeballs.WithZone(a, r.seed)
	}
	return list
}

// isOnHost reports whether a node is on the host of this one.
func (r *Reach) isOnHost(n *membership.Node) bool { return r.host != "" && r.host == n.Host }

// expectedRoute returns the route that this node tries first to another one, without connections, or nil if they have
// no transport in common.
func (r *Reach) expectedRoute(n *membership.Node) *route {
	for i := range r.paths {
		p := &r.paths[i]
		if r.carries(p, n) && (!p.isLocal() || r.isOnHost(n)) {
			return &route{path: p, bulk: r.bulkBeside(p, n), why: "not linked yet"}
		}
	}
	return nil
}

// hasRefusing reports whether a dial to a node fails at once on some path if its process has ended.
func (r *Reach) hasRefusing(n *membership.Node) bool {
	return slices.ContainsFunc(r.paths, func(p Path) bool { return p.refuses(n) })
}

// hostPaths returns the first paths that this node dials to the other nodes of a view, or nil if a path is
// not for a host.
func (r *Reach) hostPaths(v membership.View) (paths []*Path) {
	if v.Size() > 1 {
		paths = make([]*Path, 0, v.Size())
	}
	var last expectedPath
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.ID == r.self {
			continue
		}
		if last.to(r, n); last.path == nil || !last.path.isLocal() {
			return nil
		}
		paths = append(paths, last.path)
	}
	return paths
}

// IsHost reports whether this node has a path for a host in common with all other nodes of a view.
func (r *Reach) IsHost(v membership.View) bool { return r.hostPaths(v) != nil }

// HostMemory returns the transport that attaches the areas of the other nodes of a view without links, or nil if
// they do not have one in common with this node.
func (r *Reach) HostMemory(v membership.View) transport.HostMemory {
	paths := r.hostPaths(v)
	if len(paths) == 0 || slices.ContainsFunc(paths, func(p *Path) bool { return p != paths[0] }) {
		return nil
	}
	return paths[0].capabilities().HostMemory
}

// SharedBytes returns the length of the areas of this node that others of its host can read.
func (r *Reach) SharedBytes() (n int64) {
	for i := range r.paths {
		if h := r.paths[i].capabilities().HostMemory; h != nil {
			count, size := h.Areas()
			n += int64(count) * int64(size)
		}
	}
	return n
}

// outOfFiles adds to the reason for a missing link whether this process has run out of file
// descriptors: then it has not heard the other node.
func (r *Reach) outOfFiles(why error) error {
	for i := range r.paths {
		if user := r.paths[i].capabilities().FileUser; user != nil {
			if err := user.OutOfFiles(); err != nil {
				return fmt.Errorf("%w (%w)", why, err)
			}
		}
	}
	return why
}
