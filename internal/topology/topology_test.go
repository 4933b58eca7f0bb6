//race:none it starts no goroutine

package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustParse(t rapid.TB, s string) Topology {
	t.Helper()
	topology, err := Parse(s)
	if err != nil {
		t.Fatalf("Parse(%q): %v", s, err)
	}
	return topology
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"": "full", "full": "full", "full_mesh": "full", "hypercube": "hypercube", "k-regular:4": "k-regular:4",
		"k_regular:3": "k-regular:3", "K_Regular:4": "k-regular:4", "FULL_MESH": "full", "HyperCube": "hypercube", "k-regular:2147483647": "k-regular:2147483647",
	} {
		got, err := Parse(in)
		if err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %v, %v, want %s", in, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q) = %v, %v, want %v", got, again, err, got)
		}
		if isFull := strings.HasPrefix(want, "full"); got.IsFull() != isFull {
			t.Errorf("%v.IsFull() = %v", got, !isFull)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"ring": "not one of full, k-regular:K, hypercube", "fully": "not one of", "k-regular": "number of neighbors is missing",
		"k_regular:": "write k_regular:4", "k-regular:x": "not a whole number between 2 and 2147483647", "k-regular:-2": "not a whole number",
		"k-regular:4.0": "not a whole number", "k-regular:99999999999999999999": "not a whole number", "k-regular:0": "must be at least 2",
		"k-regular:1": "is 1: must be at least 2", "full:2": `"full" has no number of neighbors`, "hypercube:3": `"hypercube" has no number`,
		":": `"" has no number of neighbors`,
	} {
		if got, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", in, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "full", "k-regular:4", "k_regular:1", "hypercube:", "k-regular:99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := Parse(s); err == nil {
			if again, err := Parse(got.String()); err != nil || again != got {
				t.Errorf("Parse(%q) = %v, but Parse of that is %v, %v", s, got, again, err)
			}
			if n := got.Graph(9).Neighbors(0); len(n) == 0 {
				t.Errorf("Parse(%q) = %v, which links rank 0 of 9 to nobody", s, got)
			}
		}
	})
}

func TestNeighbors(t *testing.T) {
	for _, c := range []struct {
		topology string
		n, rank  int
		want     []int
	}{
		{"full", 4, 1, []int{2, 3, 0}},
		{"full", 1, 0, nil},
		{"k-regular:2", 5, 0, []int{1, 4}},
		{"k-regular:2", 5, 4, []int{0, 3}},
		{"k-regular:4", 12, 0, []int{1, 4, 8, 11}}, // 1 and 4 in both directions
		{"k-regular:4", 6, 5, []int{0, 1, 3, 4}},
		{"k-regular:3", 8, 1, []int{2, 5, 0}},
		{"k-regular:3", 7, 1, []int{2, 4, 0}},
		{"k-regular:3", 7, 6, []int{0, 5}}, // the last of an odd number
		{"k-regular:6", 32, 0, []int{1, 4, 8, 24, 28, 31}},
		{"k-regular:9", 4, 2, []int{3, 0, 1}},
		{"k-regular:2", 2, 0, []int{1}},
		{"hypercube", 8, 5, []int{7, 1, 4}},
		{"hypercube", 8, 0, []int{1, 2, 4}},
		{"hypercube", 6, 5, []int{1, 3, 4}}, // 3 in place of 7
		{"hypercube", 6, 3, []int{5, 1, 2}},
		{"hypercube", 9, 8, []int{0, 1, 2, 4}},
		{"hypercube", 2, 1, []int{0}},
		{"hypercube", 1, 0, nil},
		{"hypercube", 8, 8, nil},
		{"k-regular:2", 8, -1, nil},
	} {
		if got := mustParse(t, c.topology).Graph(c.n).Neighbors(c.rank); !slices.Equal(got, c.want) {
			t.Errorf("%s, %d ranks: neighbors of rank %d are %v, want %v", c.topology, c.n, c.rank, got, c.want)
		}
	}
}

// TestConnectionCount: the number of links is that of the textbook graphs, and no rank has more than K or
// log₂ n of them.
func TestConnectionCount(t *testing.T) {
	for _, c := range []struct {
		topology    string
		n           int
		want, least int // links, and neighbors of each rank
	}{
		{"full", 16, 120, 15}, {"k-regular:2", 16, 16, 2}, {"k-regular:4", 16, 32, 4}, {"k-regular:6", 16, 48, 6}, {"k-regular:5", 16, 40, 5}, {"k-regular:5", 17, 42, 4},
		{"k-regular:4", 1024, 2048, 4}, {"k-regular:16", 12, 66, 11}, {"hypercube", 16, 32, 4}, {"hypercube", 1024, 5120, 10},
		{"hypercube", 17, 37, 4}, {"hypercube", 3, 3, 2},
	} {
		g := mustParse(t, c.topology).Graph(c.n)
		ends := 0
		for rank := range c.n {
			got := len(g.Neighbors(rank))
			if got < c.least || got > g.Degree() {
				t.Errorf("%s, %d ranks: rank %d has %d neighbors, want %d to %d", c.topology, c.n, rank, got, c.least, g.Degree())
			}
			ends += got
		}
		if ends != 2*c.want {
			t.Errorf("%s, %d ranks: %d ends of links, want %d", c.topology, c.n, ends, 2*c.want)
		}
	}
}

func TestNote(t *testing.T) {
	for _, c := range []struct {
		topology string
		n        int
		want     string
	}{
		{"full", 5, ""}, {"hypercube", 5, ""}, {"k-regular:4", 5, ""}, {"k-regular:3", 6, ""}, {"k-regular:7", 1, ""},
		{"k-regular:4", 4, "k-regular:4: each of 4 nodes has only 3 others"},
		{"k-regular:3", 7, "k-regular:3: the last of 7 nodes has 2 neighbors"},
		{"k-regular:2", 129, ""}, {"k-regular:2", 130, "k-regular:2: some of 130 ranks are 65 links apart"},
		{"k-regular:3", 254, ""}, {"k-regular:3", 260, "k-regular:3: some of 260 ranks are 65 links apart"},
		{"k-regular:4", 1024, ""}, {"k-regular:4", 5000, "k-regular:4: some of 5000 ranks are"}, {"hypercube", 5000, ""},
	} {
		got := mustParse(t, c.topology).Note(c.n)
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, %d nodes: note %q, want %q", c.topology, c.n, got, c.want)
		}
	}
}

// check returns the first fault of a graph: an asymmetric link, a loop, too many or too few neighbors, or ranks that
// cannot be reached.
func check(g Graph) error {
	least := min(2, g.n-1) // So that no rank is cut off by one failure.
	if g.topology.kind == kRegular {
		least = min(g.topology.k-g.topology.k%2*(g.n%2), g.n-1)
	}
	for rank := range g.n {
		list := g.Neighbors(rank)
		if len(list) > g.Degree() || len(list) < least {
			return fmt.Errorf("rank %d has %d neighbors, want %d to %d", rank, len(list), least, g.Degree())
		}
		for i, other := range list {
			switch {
			case other == rank || slices.Contains(list[:i], other):
				return fmt.Errorf("rank %d has the neighbors %v", rank, list)
			case !slices.Contains(g.Neighbors(other), rank) || !g.IsNeighbor(rank, other) || !g.IsNeighbor(other, rank):
				return fmt.Errorf("rank %d is linked to %d, but not the other way", rank, other)
			}
		}
	}
	if reached := reach(g, 0, nil); slices.Contains(reached, Unreachable) {
		return fmt.Errorf("not connected: hops from rank 0 are %v", reached)
	}
	return nil
}

// reach returns the number of hops from a rank to all others that avoids failed ranks. It is written apart
// from Routes.
func reach(g Graph, from int, failed []int) []int {
	hops := slices.Repeat([]int{Unreachable}, g.n)
	hops[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for other := range g.n {
			if g.IsNeighbor(queue[0], other) && hops[other] == Unreachable && !slices.Contains(failed, other) {
				hops[other] = hops[queue[0]] + 1
				queue = append(queue, other)
			}
		}
	}
	return hops
}

// TestGraphs checks the graphs of all sizes up to 130, and some larger ones.
func TestGraphs(t *testing.T) {
	for _, name := range []string{"full", "hypercube", "k-regular:2", "k-regular:3", "k-regular:4", "k-regular:5", "k-regular:6", "k-regular:8", "k-regular:31"} {
		for n := 1; n <= 130; n++ {
			if err := check(mustParse(t, name).Graph(n)); err != nil {
				t.Fatalf("%s, %d ranks: %v", name, n, err)
			}
		}
	}
}

// TestDiameter: the longest of the shortest paths stays short as the graph grows.
func TestDiameter(t *testing.T) {
	for _, c := range []struct {
		topology string
		n, most  int
	}{
		{"k-regular:2", 64, 32}, {"k-regular:4", 12, 3}, {"k-regular:4", 32, 6}, {"k-regular:4", 1024, 32}, {"k-regular:6", 1024, 15}, {"k-regular:8", 1024, 10},
		{"k-regular:3", 64, 17}, {"hypercube", 1024, 10}, {"hypercube", 1025, 11}, {"hypercube", 700, 10}, {"full", 100, 1},
	} {
		g := mustParse(t, c.topology).Graph(c.n)
		longest := 0
		for rank := range c.n {
			if rank < 16 || rank > c.n-16 {
				routes := g.Routes(rank, Broken{})
				for to := range c.n {
					longest = max(longest, routes.Hops(to))
				}
			}
		}
		t.Logf("%s, %d ranks: %d hops", c.topology, c.n, longest)
		if longest > c.most {
			t.Errorf("%s, %d ranks: %d hops, want at most %d", c.topology, c.n, longest, c.most)
		}
	}
}

// TestStability: a node that leaves or joins a k-regular world changes few links of the others.
func TestStability(t *testing.T) {
	for _, c := range []struct {
		topology string
		n, most  int
	}{{"k-regular:2", 100, 1}, {"k-regular:4", 100, 12}, {"k-regular:4", 1000, 40}} {
		before, after := mustParse(t, c.topology).Graph(c.n), mustParse(t, c.topology).Graph(c.n-1)
		for _, gone := range []int{0, 1, c.n / 2, c.n - 1} {
			added := 0
			for rank := range after.n {
				for _, other := range after.Neighbors(rank) {
					if !before.IsNeighbor(without(rank, gone), without(other, gone)) {
						added++
					}
				}
			}
			if added/2 > c.most {
				t.Errorf("%s, %d ranks without rank %d: %d new links, want at most %d", c.topology, c.n, gone, added/2, c.most)
			}
		}
	}
}

// without returns the former rank of a rank after another one has gone.
func without(rank, gone int) int {
	if rank >= gone {
		return rank + 1
	}
	return rank
}

// draw returns a topology for a property.
func draw(t *rapid.T) Topology {
	topology, err := Parse(rapid.OneOf(rapid.Just("hypercube"), rapid.Just("full"), rapid.Map(rapid.IntRange(2, 12), func(k int) string {
		return fmt.Sprintf("k-regular:%d", k)
	})).Draw(t, "topology"))
	if err != nil {
		t.Fatal(err)
	}
	return topology
}

// TestRosterChanges: after any joins and leaves, the graph of the rest is sound and connected. After failures
// that are not in the view yet, the survivors reach each other exactly if the graph without the failed ranks
// connects them: each sends frames to a next hop that is nearer to the destination.
func TestRosterChanges(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube", "any"} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.IntRange(1, 30).Draw(t, "n")
				var topology Topology
				if name == "any" {
					topology = draw(t)
				} else {
					topology = mustParse(t, name)
				}
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					n = max(1, n+rapid.IntRange(-5, 5).Draw(t, "change"))
					checkSurvivors(t, topology.Graph(n), rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, n-1, rapid.ID).Draw(t, "failed"))
				}
			})
		})
	}
}

// checkSurvivors checks a graph, and the routes of the ranks that have not failed.
func checkSurvivors(t *rapid.T, g Graph, failed []int) {
	t.Helper()
	if err := check(g); err != nil {
		t.Fatalf("%v, %d ranks: %v", g.topology, g.n, err)
	}
	hops := make([][]int, g.n) // from each living rank
	for self := range hops {
		if !slices.Contains(failed, self) {
			hops[self] = reach(g, self, failed)
		}
	}
	for self, want := range hops {
		if want == nil {
			continue
		}
		routes := g.Routes(self, Broken{Ranks: failed})
		for rank := range g.n {
			if routes.Hops(rank) != want[rank] {
				t.Fatalf("%v, %d ranks without %v: rank %d is %d hops from %d, want %d", g.topology, g.n, failed, rank, routes.Hops(rank), self, want[rank])
			}
			isReachable := rank != self && want[rank] != Unreachable
			next := routes.To(rank).Next
			if isReachable != (next != None) || isReachable && (!g.IsNeighbor(self, next) || hops[next] == nil || hops[next][rank] != want[rank]-1) {
				t.Fatalf("%v, %d ranks without %v: the next hop from %d to %d is %d, want a living neighbor nearer to it: %v", g.topology, g.n, failed, self, rank, next, isReachable)
			}
		}
	}
}
