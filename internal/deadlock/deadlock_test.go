//race:none it starts no goroutine

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

func anyIn(ranges ...Range) Rank {
	return Rank{Calls: []Call{{Any: true, Ranges: ranges}}}
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
		"any rank and itself": {Graph{0: anyOf(0, 1), 1: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 0}}},
		"itself alone":        {Graph{0: all(0)}, 0, []Member{{0, 0, 0}}},
		"a busy rank":         {Graph{0: all(1), 1: {Busy: true, Calls: []Call{{For: []int{0}}}}}, 0, nil},
		"another call ends":   {Graph{0: all(1), 1: {Calls: []Call{{For: []int{0}}, {For: []int{2}}}}}, 0, nil},
		"no call ends":        {Graph{0: all(1), 1: {Calls: []Call{{For: []int{2}}, {For: []int{0}}}}, 2: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 2}, {2, 0, 0}}},
		"all are needed":      {Graph{0: all(2, 1), 1: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 0}}},
		"any is enough":       {Graph{0: anyOf(2, 1), 1: all(0)}, 0, nil},
		"any of blocked":      {Graph{0: anyOf(2, 1), 1: all(0), 2: all(0)}, 0, []Member{{0, 0, 2}, {2, 0, 0}, {1, 0, 0}}},
		"any of a range":      {Graph{0: anyIn(Range{0, 2}), 1: all(0), 2: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 0}, {2, 0, 0}}},
		"one of it is free":   {Graph{0: anyIn(Range{0, 2}), 1: all(0), 2: {}}, 0, nil},
		"one is unknown":      {Graph{0: anyIn(Range{0, 3}), 1: all(0), 2: all(0)}, 0, nil},
		"any of two ranges":   {Graph{0: anyIn(Range{1, 1}, Range{3, 3}), 1: all(3), 2: {}, 3: all(0)}, 0, []Member{{0, 0, 1}, {1, 0, 3}, {3, 0, 0}}},
		"any, one of a cycle": {Graph{0: all(1), 1: anyOf(0, 2), 2: anyOf(3)}, 0, nil},
	} {
		if got, _ := test.g.Find(test.rank); !reflect.DeepEqual(got, test.want) {
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
				if rapid.Bool().Draw(r, "range") {
					first := rapid.IntRange(0, n-1).Draw(r, "first")
					c.Ranges = []Range{{first, rapid.IntRange(first, n-1).Draw(r, "last")}}
				} else {
					c.For = rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID).Draw(r, "for")
				}
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
			members, stuck := above.Find(rank)
			checkStuck(r, above, members, stuck)
			found = found || len(members) > 0
			for _, m := range members {
				if !blocked[m.Rank] || !blocked[m.For] || !slices.Contains(g[m.Rank].Calls[m.Call].ranks(), m.For) {
					r.Fatalf("%v: rank %d finds %v", g, rank, members)
				}
			}
		}
		if found != (len(blocked) > 0) {
			r.Fatalf("%v: blocked %v, but a rank finds a deadlock: %v", g, blocked, found)
		}
	})
}

// checkStuck checks that stuck ranks are blocked by each other alone, and contain the members.
func checkStuck(r *rapid.T, g Graph, members []Member, stuck []int) {
	only := make(Graph)
	for _, rank := range stuck {
		only[rank] = g[rank]
	}
	blocked := only.blocked()
	for _, m := range members {
		if !slices.Contains(stuck, m.Rank) {
			r.Fatalf("%v: the stuck ranks %v lack rank %d", g, stuck, m.Rank)
		}
	}
	for _, rank := range stuck {
		if !blocked[rank] {
			r.Fatalf("%v: rank %d of the stuck ranks %v is not blocked by the others", g, rank, stuck)
		}
	}
}

// ranks returns the ranks that a call waits for.
func (c *Call) ranks() []int {
	list := slices.Clone(c.For)
	for _, r := range c.Ranges {
		for rank := r.First; rank <= r.Last; rank++ {
			list = append(list, rank)
		}
	}
	return list
}

// restricted returns a rank as one that knows no rank below low sees it.
func restricted(r Rank, low int) Rank {
	out := Rank{Busy: r.Busy}
	for _, c := range r.Calls {
		d := Call{Any: c.Any}
		for _, rank := range c.ranks() {
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
				for _, other := range c.ranks() {
					if free[other] {
						n++
					}
				}
				goes = goes || n == len(c.ranks()) || c.Any && n > 0
			}
			if goes && !free[rank] {
				free[rank], changed = true, true
			}
		}
	}
	return free
}

// TestFindManyRanks: a receive from any of 2,000 ranks takes no more space than one from one rank, and a deadlock of
// them is found. Only one call is needed to show that it is one.
func TestFindManyRanks(t *testing.T) {
	const n = 2000
	g := Graph{0: all(1)}
	for rank := 1; rank < n; rank++ {
		g[rank] = anyIn(Range{0, n - 1})
	}
	members, _ := g.Find(0)
	if len(members) != n || members[0] != (Member{0, 0, 1}) || members[1] != (Member{1, 0, 0}) {
		t.Errorf("%d members, first %v; want %d", len(members), members[:min(2, len(members))], n)
	}
	g[n/2] = Rank{Busy: true, Calls: g[n/2].Calls}
	if members, _ := g.Find(0); members != nil {
		t.Errorf("one rank is busy, and %d are in a deadlock", len(members))
	}
}

// TestUnseen: each rank is taken once, in order, and ranks beyond the end never.
func TestUnseen(t *testing.T) {
	u := NewUnseen(10)
	var got []int
	for _, r := range []Range{{3, 5}, {4, 4}, {-1, 4}, {2, 20}, {0, 1 << 40}} {
		u.Take(r, func(rank int) { got = append(got, rank) })
	}
	if want := []int{3, 4, 5, 0, 1, 2, 6, 7, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("taken: %v, want %v", got, want)
	}
}
