package mesh

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/transport"
)

// A Group is the ranks of a communicator, as this node reaches them.
type Group struct {
	Nodes []membership.Node // by rank
	Links []*link.Link      // by rank
	// Topology is that of the world. HasRelay says that this node reaches ranks that are not neighbors.
	Topology topology.Topology
	HasRelay bool
	// Distances are those of ranks that watch each other in a view of as many nodes, in the full topology. Watches returns the ranks that a
	// rank watches, and those that watch it.
	Distances []int
	Watches   func(rank int) []int
	// OnDemand says that this node links itself to others only when something needs it, apart from watches.
	OnDemand bool
	// Detached has the slots of the nodes that had detached from the memory of this node when the Group was made.
	Detached []int

	mesh *Mesh
}

// Group describes how this node reaches some ranks of a view. If a node has no link, the Group has no Links, and the error names the node.
func (m *Mesh) Group(v membership.View, ranks []int) (*Group, error) {
	g := &Group{
		Nodes: v.Nodes, Topology: m.cfg.Topology, HasRelay: m.reach.hasRelay(), OnDemand: m.cfg.OnDemand, Detached: m.detached(),
		Distances: membership.WatchDistances(len(ranks), m.graph.Count), Watches: m.graph.Among(v, ranks), mesh: m,
	}
	if !isAll(ranks, v) {
		g.Nodes = make([]membership.Node, 0, len(ranks))
		for _, r := range ranks {
			g.Nodes = append(g.Nodes, v.Nodes[r])
		}
	}
	var err error
	g.Links, err = m.links(g.view())
	return g, err
}

// isAll reports whether ranks are all ranks of a view, in their order. Views are immutable, so their nodes are then not copied.
func isAll(ranks []int, v membership.View) bool {
	for i, r := range ranks {
		if i != r {
			return false
		}
	}
	return len(ranks) == v.Size()
}

func (g *Group) view() membership.View { return membership.View{Nodes: g.Nodes} }

// Paths describes the connections to the other ranks, in their order.
func (g *Group) Paths() []PathInfo { return g.mesh.Paths(g.view()) }

// EachPath yields the elements of Paths. It holds a lock of the mesh meanwhile. An element is valid until the next one.
func (g *Group) EachPath() iter.Seq[*PathInfo] { return g.mesh.eachPath(g.view()) }

// Common returns the name that all paths have, or "mixed", and whether all of them are encrypted.
// Without paths the name is "mem", since all ranks are in this process. It reports the number of paths, too.
func (g *Group) Common() (name string, encrypted bool, paths int) {
	name, encrypted = "mem", true
	for i := range g.EachPath() {
		this := strings.TrimSuffix(i.Transport, "+tls")
		if bulk := strings.TrimSuffix(i.BulkTransport, "+tls"); bulk != this {
			this += "+" + bulk
		}
		if paths > 0 && this != name {
			this = "mixed"
		}
		name, encrypted = this, encrypted && i.Encrypted
		paths++
	}
	return name, encrypted && paths > 0, paths
}

// SameProcess reports whether all ranks are in this process.
func (g *Group) SameProcess() bool {
	for i := range g.EachPath() {
		if i.Locality != transport.SameProcess {
			return false
		}
	}
	return true
}

// Neighbors returns the ranks that this node connects to without relays, in ascending order.
func (g *Group) Neighbors() (ranks []int) {
	m := g.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	near := m.reach.neighborsIn(m.view)
	for rank, p := range m.peersInLocked(g.view()) {
		if near.has(p.node.ID) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// HostMemory returns the transport that attaches the areas of the other ranks without links, or nil if they do not have one in common with this
// node. isHost reports whether this node has a path for a host in common with each of them.
func (g *Group) HostMemory() (h transport.HostMemory, isHost bool) {
	return g.mesh.reach.HostMemory(g.view()), g.mesh.reach.IsHost(g.view())
}

// LinkHost waits until this node is linked to all ranks, all on its host, so that
// they can share memory over the links. All of them call LinkHost, and of two nodes the one with the larger NodeID
// dials. LinkHost does nothing if a node has no path for a host in common with this one. A link
// that ends meanwhile is no error.
func (g *Group) LinkHost(ctx context.Context) error {
	m := g.mesh
	var pending membership.View
	var links []*link.Link // to its nodes
	m.mu.Lock()
	for _, p := range m.peersInLocked(g.view()) {
		if p.isPending() {
			pending.Nodes, links = append(pending.Nodes, *p.node), append(links, p.link)
		}
	}
	m.mu.Unlock()
	if !m.reach.IsHost(pending) {
		return nil
	}
	for i, l := range links {
		if bytes.Compare(m.cfg.Self[:], pending.Nodes[i].ID[:]) > 0 {
			l.Need(link.Memory)
		}
	}
	late := time.AfterFunc(lateAfter, func() {
		for _, l := range links {
			l.Need(link.Memory)
		}
	})
	defer late.Stop()
	for _, l := range links {
		select {
		case <-l.Settled():
		case <-l.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// links returns the links to the nodes of a view, in the order of their ranks. The error names
// a node without a link.
func (m *Mesh) links(v membership.View) ([]*link.Link, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	links := make([]*link.Link, v.Size())
	for rank, n := range v.Nodes {
		if slot, ok := m.slots[n.ID]; ok {
			links[rank] = m.peers[slot].link
		}
		if links[rank] == nil {
			return nil, &UnreachableError{Rank: rank, Node: n.ID, Addrs: n.Addrs, Err: errUnlinked}
		}
	}
	return links, nil
}

// detached returns the slots of the nodes that have detached from the memory that they shared with
// this node: their processes have ended, or they have said goodbye. After the loss of a link alone
// a node may still access the memory: its process may be suspended.
func (m *Mesh) detached() (slots []int) {
	m.loop.ask(func() {
		for slot := range m.peers {
			if p := &m.peers[slot]; p.processEnded != nil && p.processEnded() {
				p.processEnded = hasLeft // It stays true.
				slots = append(slots, slot)
			}
		}
	})
	return slots
}
