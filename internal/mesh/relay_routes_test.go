package mesh

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/topology"
)

// A changingWorld has the routes of all nodes after some nodes have died: all of them know the next view, and have the links
// of the view before alone.
type changingWorld struct {
	graph    topology.Graph // of the view before
	before   membership.View
	next     membership.View
	routes   map[membership.NodeID]*relayRoutes
	isLinked func(a, b membership.NodeID) bool
}

func newChangingWorld(t *testing.T, topo topology.Topology, n int, dead []int) *changingWorld {
	return newChangingWorldWith(t, topo, n, dead, func(membership.NodeID, membership.NodeID) bool { return false })
}

// newChangingWorldWith is newChangingWorld with links that are new in the next view.
func newChangingWorldWith(t *testing.T, topo topology.Topology, n int, dead []int, isNew func(a, b membership.NodeID) bool) *changingWorld {
	w := &changingWorld{graph: topo.Graph(n), routes: make(map[membership.NodeID]*relayRoutes)}
	w.before.Epoch, w.next.Epoch = 1, 2
	for i := range n {
		node := membership.Node{ID: membership.NodeID{byte(i + 1)}}
		w.before.Nodes = append(w.before.Nodes, node)
		if !slices.Contains(dead, i) {
			w.next.Nodes = append(w.next.Nodes, node)
		}
	}
	stopped := make(map[membership.NodeID]bool)
	for _, i := range dead {
		stopped[w.before.Nodes[i].ID] = true
	}
	linked := make(map[[2]membership.NodeID]bool)
	next := topo.Graph(w.next.Size())
	for rank, a := range w.next.Nodes {
		for _, near := range next.Neighbors(rank) {
			if b := w.next.Nodes[near]; near > rank && isNew(a.ID, b.ID) {
				linked[[2]membership.NodeID{a.ID, b.ID}] = true
			}
		}
	}
	w.isLinked = func(a, b membership.NodeID) bool {
		return slices.Contains(w.graph.Neighbors(int(a[0])-1), int(b[0])-1) || linked[[2]membership.NodeID{a, b}] || linked[[2]membership.NodeID{b, a}]
	}
	for rank, node := range w.next.Nodes {
		tables := &relayTables{direct: make(map[membership.NodeID]bool)}
		for _, other := range w.next.Nodes {
			if w.isLinked(node.ID, other.ID) {
				tables.direct[other.ID] = true
			}
		}
		tables.list = []*relayTable{w.table(t, topo, w.next, rank, nil), w.table(t, topo, w.before, int(node.ID[0])-1, dead)}
		reach := newReach(&Config{Self: node.ID, Topology: topo})
		tables.all = sync.OnceValue(func() map[membership.NodeID][]membership.NodeID {
			return reach.routesOverAll([]membership.View{w.next, w.before}, tables.direct, stopped)
		})
		r := new(relayRoutes)
		r.tables.Store(tables)
		w.routes[node.ID] = r
	}
	return w
}

// table returns the table of a rank for a view with some dead ranks.
func (w *changingWorld) table(t *testing.T, topo topology.Topology, v membership.View, self int, dead []int) *relayTable {
	t.Helper()
	table := &relayTable{view: v, ranks: make(map[membership.NodeID]int)}
	for rank, n := range v.Nodes {
		table.ranks[n.ID] = rank
	}
	g := topo.Graph(v.Size())
	broken := topology.Broken{Ranks: dead}
	for _, near := range g.Neighbors(self) {
		if !w.isLinked(v.Nodes[self].ID, v.Nodes[near].ID) {
			broken.Links = append(broken.Links, near)
		}
	}
	table.routes = g.Routes(self, broken)
	return table
}

// walk passes a frame on as forward.Node does, over links that exist, and returns the number of its hops.
func (w *changingWorld) walk(from, to membership.NodeID) (made int, err error) {
	var path []membership.NodeID
	var came membership.NodeID
	for at := from; at != to; made++ {
		if path = append(path, at); made == hopLimit {
			return made, fmt.Errorf("the frame from %d to %d is still on the way after %v", from[0], to[0], path)
		}
		var next membership.NodeID
		for _, id := range w.routes[at].NextHops(to, made, nil) {
			if w.routes[id] == nil || !w.isLinked(at, id) {
				continue
			}
			if next == (membership.NodeID{}) || next == came {
				next = id
			}
		}
		if next == (membership.NodeID{}) {
			return made, fmt.Errorf("no next hop from %d to %d after %v", at[0], to[0], path)
		}
		came, at = at, next
	}
	return made, nil
}

// TestRoutesWhileViewChanges: after deaths, when all nodes have the next view and none has a link that is new in it, frames
// reach all nodes that the links of the view before connect.
func TestRoutesWhileViewChanges(t *testing.T) {
	require.NoRace(t, "it starts no goroutine")
	random := rand.New(rand.NewPCG(22, 64))
	for _, name := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube"} {
		topo, err := topology.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		circles := 0
		for n := 4; n <= 40; n++ {
			dead := []int{random.IntN(n)}
			w := newChangingWorld(t, topo, n, dead)
			for _, from := range w.next.Nodes {
				for _, to := range w.next.Nodes {
					made, err := w.walk(from.ID, to.ID)
					if err != nil {
						t.Fatalf("%s, %d nodes without %v: %v", name, n, dead, err)
					}
					if made >= w.next.Size() {
						circles++
					}
				}
			}
		}
		t.Logf("%s: %d frames have gone around in a circle first", name, circles)
	}
}

// TestRoutesOverLinksOfTwoViews: relays have left, and only some of the links that are new in the next view exist. Frames reach all nodes
// that the existing links connect, also if neither view alone has a path: one of many attempts does, as with frames that are sent
// again.
func TestRoutesOverLinksOfTwoViews(t *testing.T) {
	const attempts = 1000
	random := rand.New(rand.NewPCG(28, 81))
	for _, name := range []string{"k-regular:2", "k-regular:3", "hypercube"} {
		topo, err := topology.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		repeated, pairs := 0, 0
		for range 60 {
			n := 8 + random.IntN(17)
			dead := random.Perm(n)[:1+random.IntN(n/2)]
			w := newChangingWorldWith(t, topo, n, dead, func(membership.NodeID, membership.NodeID) bool { return random.IntN(2) == 0 })
			for _, from := range w.next.Nodes {
				connected := w.connected(from.ID)
				for _, to := range w.next.Nodes {
					if !connected[to.ID] {
						continue
					}
					pairs++
					err := errors.New("not sent")
					for i := 0; err != nil && i < attempts; i++ {
						if _, err = w.walk(from.ID, to.ID); err != nil {
							repeated++
						}
					}
					if err != nil {
						t.Fatalf("%s, %d nodes without %v: %v", name, n, dead, err)
					}
				}
			}
		}
		t.Logf("%s: %d repetitions for %d frames", name, repeated, pairs)
	}
}

// connected returns the nodes that a living node reaches over links that exist.
func (w *changingWorld) connected(from membership.NodeID) map[membership.NodeID]bool {
	reached := map[membership.NodeID]bool{from: true}
	for queue := []membership.NodeID{from}; len(queue) > 0; queue = queue[1:] {
		for _, other := range w.next.Nodes {
			if !reached[other.ID] && w.isLinked(queue[0], other.ID) {
				reached[other.ID] = true
				queue = append(queue, other.ID)
			}
		}
	}
	return reached
}
