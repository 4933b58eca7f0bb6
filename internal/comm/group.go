package comm

import (
	"context"
	"sync"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/topology"
)

// negotiation returns the configuration of the negotiation, without the communicators that carry it: what the mesh tells of the ranks, in
// the terms of package negotiate.
func (c *Comm) negotiation(hops cost.Hops) negotiate.Config {
	v, g, hosts := c.View, c.group, c.Hosts()
	cfg := negotiate.Config{
		Comm: c.Engine, Rank: c.Rank, Hosts: hosts, Classes: c.pathClasses(hosts), Hops: hops, Watches: g.Watches, OnDemand: g.OnDemand,
		Known: v.known, Timeout: v.timeout, Selector: c.Selector, Allocator: v.allocator, SameProcess: g.SameProcess(), Detached: g.Detached,
		Sharing: c.sharing(hosts), Pool: negotiationPool(), Log: v.log,
	}
	if hops == nil {
		cfg.Distances = g.Distances
	}
	return cfg
}

// sharing returns the means of the ranks to share memory: the zero value unless they are on one host, and few
// enough.
func (c *Comm) sharing(hosts plan.Hosts) (s negotiate.Sharing) {
	if hosts.Count() != 1 || c.Size() > cost.SharedRanksMax {
		return s
	}
	memory, isHost := c.group.HostMemory()
	if !isHost {
		return s
	}
	s.LinkAll = func(ctx context.Context) (cost.PathClasses, error) {
		err := c.group.LinkHost(ctx)
		return c.pathClasses(hosts), err
	}
	s.Host = memory
	for _, n := range c.Nodes {
		s.Names = append(s.Names, n.ID.String())
	}
	return s
}

// pathClasses returns the classes of paths to the other ranks.
func (c *Comm) pathClasses(hosts plan.Hosts) (w cost.PathClasses) {
	for p := range c.group.EachPath() {
		if p.Hops > 1 {
			continue // Its links have the classes of others.
		}
		w.Add(p.Class, hosts.Same(c.Rank, p.Rank))
	}
	return w
}

// Paths returns the paths to the other ranks.
func (c *Comm) Paths() []mesh.PathInfo { return c.group.Paths() }

// Common returns the name of the transport of all links, or "mixed", and whether all of them are encrypted. They are those that
// the links use now. Once a rank has no link, they are those of the beginning.
func (c *Comm) Common() (transport string, encrypted bool) {
	transport, encrypted, paths := c.group.Common()
	if paths < c.Size()-1 {
		return c.transport, c.encrypted
	}
	return transport, encrypted
}

// Neighbors returns the ranks that the topology of the world links to this node, in ascending order.
func (c *Comm) Neighbors() []int { return c.group.Neighbors() }

// hops returns the number of hops between ranks of a communicator, which are ranks of the view, or nil in the full
// topology. It is the same on all ranks.
func (v *ViewContext) hops(g *mesh.Group, ranks []int) cost.Hops {
	if g.Topology.IsFull() {
		return nil
	}
	graph := g.Topology.Graph(v.View.Size())
	var mu sync.Mutex
	routes := make(map[int]*topology.Routes)
	return func(from, to int) int {
		from, to = ranks[from], ranks[to]
		switch {
		case from == to:
			return 0
		case graph.IsNeighbor(from, to):
			return 1
		case !g.HasRelay:
			return cost.Unreachable
		}
		mu.Lock()
		defer mu.Unlock()
		if routes[from] == nil {
			routes[from] = graph.Routes(from, topology.Broken{})
		}
		return routes[from].Hops(to)
	}
}
