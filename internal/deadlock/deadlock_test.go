package deadlock

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func all(ranks ...int) Rank { return Rank{Calls: []Call{{For: ranks}}} }
func anyOf(ranks ...int) Rank {
	return Rank{Calls: []Call{{Any: true, For: ranks}}}
}

func TestFind(t *testing.T) {
	for name, test := range map[string]struct {
		g    Graph
		rank int
		want []Member
	}{
		"two sends":           {Graph{0: all(1), 1: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 0}}},
		"three receives":      {Graph{0: all(1), 1: all(2), 2: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 2}, {2, 0, 0}}},
		"itself":              {Graph{0: all(0)}, 0, []Member{{0, 0, 0}}},
		"a chain":             {Graph{0: all(1), 1: all(2)}, 0, nil},
		"behind a cycle":      {Graph{0: all(1), 1: all(2), 2: all(1)}, 0, nil},
		"before a cycle":      {Graph{0: all(1), 1: all(2), 2: all(1)}, 1, []Member{{1, 0, 2}, {2, 0, 1}}},
		"a computing rank":    {Graph{0: all(1), 1: {}}, 0, nil},
		"a busy rank":         {Graph{0: all(1), 1: {Busy: true, Calls: []Call{{For: []int{0}}}}}, 0, nil},
		"another call ends":   {Graph{0: all(1), 1: {Calls: []Call{{For: []int{0}}, {For: []int{2}}}}}, 0, nil},
		"no call ends":        {Graph{0: all(1), 1: {Calls: []Call{{For: []int{2}}, {For: []int{0}}}}, 2: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 2}, {2, 0, 0}}},
		"all are needed":      {Graph{0: all(2, 1), 1: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 0}}},
		"any is enough":       {Graph{0: anyOf(2, 1), 1: all(0)}, 0, nil},
		"any of blocked":      {Graph{0: anyOf(2, 1), 1: all(0), 2: all(0)}, 0, []Member{{0, 0, 2}, {2, 0, 0}, {1, 0, 0}}},
		"any, one of a cycle": {Graph{0: all(1), 1: anyOf(0, 2), 2: anyOf(3)}, 0, nil},
	} {
		if got := test.g.Find(test.rank); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: Find(%d) = %v, want %v", name, test.rank, got, test.want)
		}
	}
}

// TestFindSound: the calls of blocked ranks cannot end, in any order of the others; the calls
// of the remaining ranks can. A sink of the graph of blocked ranks is found by its lowest rank from
// the ranks that are not lower.
func TestFindSound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(r, "n")
		g := make(Graph)
		for rank := range n {
			var w Rank
			w.Busy = rapid.IntRange(0, 9).Draw(r, "busy") == 0
			for range rapid.IntRange(0, 2).Draw(r, "calls") {
				c := Call{Any: rapid.Bool().Draw(r, "any")}
				c.For = rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID).Draw(r, "for")
				w.Calls = append(w.Calls, c)
			}
			g[rank] = w
		}
		free := simulate(g)
		blocked := g.blocked()
		for rank := range n {
			if blocked[rank] == free[rank] {
				r.Fatalf("%v: rank %d: blocked %v, can go on %v", g, rank, blocked[rank], free[rank])
			}
		}
		found := false
		for rank := range n {
			above := make(Graph)
			for other := rank; other < n; other++ {
				above[other] = restricted(g[other], rank)
			}
			members := above.Find(rank)
			found = found || len(members) > 0
			for _, m := range members {
				if !blocked[m.Rank] || !blocked[m.For] || !slices.Contains(g[m.Rank].Calls[m.Call].For, m.For) {
					r.Fatalf("%v: rank %d finds %v", g, rank, members)
				}
			}
		}
		if found != (len(blocked) > 0) {
			r.Fatalf("%v: blocked %v, but a rank finds a deadlock: %v", g, blocked, found)
		}
	})
}

// restricted returns a rank as one that knows no rank below low sees it.
func restricted(r Rank, low int) Rank {
	out := Rank{Busy: r.Busy}
	for _, c := range r.Calls {
		d := Call{Any: c.Any}
		for _, rank := range c.For {
			if rank >= low {
				d.For = append(d.For, rank)
			} else if c.Any {
				out.Busy = true
			}
		}
		out.Calls = append(out.Calls, d)
	}
	return out
}

// simulate returns the ranks that go on if every rank does so as soon as one of its calls can end.
func simulate(g Graph) map[int]bool {
	free := make(map[int]bool)
	for changed := true; changed; {
		changed = false
		for rank, r := range g {
			goes := r.Busy || len(r.Calls) == 0
			for _, c := range r.Calls {
				n := 0
				for _, other := range c.For {
					if free[other] {
						n++
					}
				}
				goes = goes || n == len(c.For) || c.Any && n > 0
			}
			if goes && !free[rank] {
				free[rank], changed = true, true
			}
		}
	}
	return free
}
