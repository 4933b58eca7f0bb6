package comm

import (
	"context"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
)

// sharing returns the means of the ranks to share memory: the zero value unless they are on one host, and few
// enough.
func (c *Comm) sharing(hosts plan.Hosts) (s negotiate.Sharing) {
	ranks, m := membership.View{Nodes: c.Nodes}, c.View.mesh
	if hosts.Count() != 1 || c.Size() > cost.SharedRanksMax || !m.Reach().IsHost(ranks) {
		return s
	}
	s.LinkAll = func(ctx context.Context) (cost.PathClasses, error) {
		err := m.LinkHost(ctx, ranks)
		return c.pathClasses(hosts, m.EachPath(ranks)), err
	}
	s.Host = m.Reach().HostMemory(ranks)
	for _, n := range c.Nodes {
		s.Names = append(s.Names, n.ID.String())
	}
	return s
}
