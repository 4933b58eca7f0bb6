package comm

import (
	"sync"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/topology"
)

// hops returns the number of hops between ranks of a communicator, which are ranks of the view, or nil in the full
// topology. It is the same on all ranks.
func (v *ViewContext) hops(ranks []int) cost.Hops {
	links := v.mesh.Reach().Topology()
	if links.IsFull() {
		return nil
	}
	g, isRelayed := links.Graph(v.View.Size()), v.mesh.Reach().HasRelay()
	var mu sync.Mutex
	routes := make(map[int]*topology.Routes)
	return func(from, to int) int {
		from, to = ranks[from], ranks[to]
		switch {
		case from == to:
			return 0
		case g.IsNeighbor(from, to):
			return 1
		case !isRelayed:
			return cost.Unreachable
		}
		mu.Lock()
		defer mu.Unlock()
		if routes[from] == nil {
			routes[from] = g.Routes(from, topology.Broken{})
		}
		return routes[from].Hops(to)
	}
}
