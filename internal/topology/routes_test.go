package topology

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRoutingTable(t *testing.T) {
	ring := mustParse(t, "k-regular:2").Graph(6)
	for _, c := range []struct {
		name   string
		g      Graph
		self   int
		broken Broken
		to     int
		want   Route
	}{
		{"itself", ring, 2, Broken{}, 2, Route{None, 0, None, Unreachable}},
		{"neighbor", ring, 0, Broken{}, 1, Route{1, 1, 5, 5}},
		{"relay", ring, 0, Broken{}, 2, Route{1, 2, 5, 4}},
		{"halfway", ring, 0, Broken{}, 3, Route{1, 3, 5, 3}},
		{"lost link", ring, 0, Broken{Links: []int{1}}, 1, Route{5, 5, None, Unreachable}},
		{"failed relay", ring, 0, Broken{Ranks: []int{1}}, 2, Route{5, 4, None, Unreachable}},
		{"failed rank", ring, 0, Broken{Ranks: []int{2}}, 2, Route{None, Unreachable, None, Unreachable}},
		{"cut off", ring, 0, Broken{Ranks: []int{1}, Links: []int{5}}, 3, Route{None, Unreachable, None, Unreachable}},
		{"outside", ring, 0, Broken{}, 6, Route{None, Unreachable, None, Unreachable}},
		{"from outside", ring, 6, Broken{}, 0, Route{None, Unreachable, None, Unreachable}},
		{"cube", mustParse(t, "hypercube").Graph(8), 0, Broken{}, 7, Route{1, 3, 2, 3}},
		{"cube, failed relay", mustParse(t, "hypercube").Graph(8), 0, Broken{Ranks: []int{1}}, 7, Route{2, 3, 4, 3}},
		{"full", mustParse(t, "full").Graph(4), 3, Broken{}, 1, Route{1, 1, 0, 2}},
	} {
		if got := c.g.Routes(c.self, c.broken).To(c.to); got != c.want {
			t.Errorf("%s: route from %d to %d is %+v, want %+v", c.name, c.self, c.to, got, c.want)
		}
	}
}

// TestForwarding: frames that every node forwards by its own table arrive over a shortest path, and a loop-free
// alternative neighbor delivers without the node that sent the frame.
func TestForwarding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := draw(t).Graph(rapid.IntRange(2, 40).Draw(t, "n"))
		tables := make([]*Routes, g.n)
		for rank := range tables {
			tables[rank] = g.Routes(rank, Broken{})
		}
		for from := range tables {
			shortest := reach(g, from, nil)
			for to := range tables {
				route := tables[from].To(to)
				if route.Hops != shortest[to] {
					t.Fatalf("%d hops from %d to %d, want %d", route.Hops, from, to, shortest[to])
				}
				path := follow(tables, from, to)
				if len(path) != route.Hops || from != to && path[len(path)-1] != to {
					t.Fatalf("path from %d to %d is %v, want %d hops", from, to, path, route.Hops)
				}
				if from == to || route.Alternative == None {
					continue
				}
				if route.Alternative == route.Next || !g.IsNeighbor(from, route.Alternative) {
					t.Fatalf("alternative of rank %d to %d is %d, beside %d", from, to, route.Alternative, route.Next)
				}
				avoiding := reach(g, route.Alternative, []int{from})
				if route.AlternativeHops != avoiding[to]+1 {
					t.Fatalf("alternative of rank %d to %d has %d hops, want %d", from, to, route.AlternativeHops, avoiding[to]+1)
				}
				if route.IsLoopFree() && slices.Contains(follow(tables, route.Alternative, to), from) {
					t.Fatalf("loop-free alternative %d of rank %d to %d leads back", route.Alternative, from, to)
				}
			}
		}
	})
}

// follow returns the ranks that a frame passes by the tables of the ranks, without the first; it
// gives up after as many hops as there are ranks.
func follow(tables []*Routes, from, to int) (path []int) {
	for at := from; at != to && len(path) < len(tables); {
		if at = tables[at].To(to).Next; at == None {
			return append(path, None)
		}
		path = append(path, at)
	}
	return path
}

// TestAlternatives: a rank with a second neighbor that still reaches a destination has an alternative to it.
func TestAlternatives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := draw(t).Graph(rapid.IntRange(2, 40).Draw(t, "n"))
		self := rapid.IntRange(0, g.n-1).Draw(t, "self")
		r := g.Routes(self, Broken{})
		for to := range g.n {
			ways := 0
			for _, first := range g.Neighbors(self) {
				if first == to || reach(g, first, []int{self})[to] != Unreachable {
					ways++
				}
			}
			if has := r.To(to).Alternative != None; to != self && has != (ways > 1) {
				t.Fatalf("%v, %d ranks: %d neighbors of %d lead to %d, alternative: %v", g.topology, g.n, ways, self, to, has)
			}
		}
	})
}

// TestBrokenNeighbors: tables of nodes that know the same failed ranks deliver without a loop, and a node does
// not send to a neighbor after it has lost the link to it.
func TestBrokenNeighbors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := draw(t).Graph(rapid.IntRange(3, 30).Draw(t, "n"))
		failed := rapid.SliceOfNDistinct(rapid.IntRange(1, g.n-1), 0, g.n-2, rapid.ID).Draw(t, "failed")
		lost := rapid.SampledFrom(g.Neighbors(0)).Draw(t, "lost")
		tables := make([]*Routes, g.n)
		for rank := range tables {
			tables[rank] = g.Routes(rank, Broken{Ranks: failed})
		}
		for to, hops := range reach(g, 0, failed) {
			if path := follow(tables, 0, to); hops != Unreachable && len(path) != hops {
				t.Fatalf("path to %d without %v is %v, want %d hops", to, failed, path, hops)
			}
			route := g.Routes(0, Broken{Ranks: failed, Links: []int{lost}}).To(to)
			if route.Next == lost || route.Alternative == lost {
				t.Fatalf("route to %d over lost link to %d: %+v", to, lost, route)
			}
		}
	})
}

func BenchmarkRoutes(b *testing.B) {
	for _, name := range []string{"k-regular:4", "hypercube"} {
		b.Run(name, func(b *testing.B) {
			g := mustParse(b, name).Graph(1024)
			for b.Loop() {
				g.Routes(5, Broken{})
			}
		})
	}
}
