package comm

import (
	"context"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// A sharing has the means of the ranks of a communicator to share memory; see [negotiate.Config].
type sharing struct {
	memory  transport.HostMemory
	names   []string
	linkAll func(context.Context) (cost.PathClasses, error)
}

// sharing returns the zero value unless the ranks are on one host, and few enough to share memory.
func (c *Comm) sharing(hosts plan.Hosts) (s sharing) {
	ranks := membership.View{Nodes: c.Nodes}
	if hosts.Count() != 1 || c.Size() > cost.SharedRanksMax || !c.View.mesh.IsHost(ranks) {
		return s
	}
	s.linkAll = func(ctx context.Context) (cost.PathClasses, error) {
		err := c.View.mesh.LinkHost(ctx, ranks)
		return c.pathClasses(), err
	}
	s.memory = c.View.mesh.HostMemory(ranks)
	for _, n := range c.Nodes {
		s.names = append(s.names, n.ID.String())
	}
	return s
}
