package membership

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/internal/topology"
)

func mustParse(t testing.TB, s string) topology.Topology {
	t.Helper()
	sparse, err := topology.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return sparse
}

// TestWatchGraph: in a sparse topology exactly the neighbors watch each other.
func TestWatchGraph(t *testing.T) {
	v := View{Nodes: nodes(12)}
	for _, name := range []string{"full", "k-regular:4", "hypercube"} {
		g := WatchGraph{Topology: mustParse(t, name)}
		for a := range v.Size() {
			want := Watched(v, a, 0)
			if name != "full" {
				want = g.Topology.Graph(12).Neighbors(a)
			}
			if got := g.Watched(v, a); !slices.Equal(got, want) {
				t.Errorf("%s: rank %d watches %v, want %v", name, a, got, want)
			}
			for b := range v.Size() {
				watches := slices.Contains(g.Watched(v, a), b) || slices.Contains(g.Watched(v, b), a)
				if g.Connects(v, a, b) != watches || g.Watches(&v, v.Nodes[a].ID, v.Nodes[b].ID.String()) != watches {
					t.Errorf("%s: ranks %d and %d: want %v", name, a, b, watches)
				}
			}
		}
		if !g.Watches(nil, v.Nodes[0].ID, v.Nodes[1].ID.String()) || !g.Watches(&v, node(20).ID, v.Nodes[1].ID.String()) || !g.Watches(&v, v.Nodes[0].ID, "x") {
			t.Errorf("%s: a node outside the view is not watched", name)
		}
	}
}

// TestWatchesAmong: in a part of a view those ranks watch each other that do so in the view.
func TestWatchesAmong(t *testing.T) {
	v := View{Nodes: nodes(40)}
	for name, part := range map[string][]int{"all": everyRank(40), "some in another order": {39, 3, 7, 2, 0, 8, 20, 4}, "one": {5}} {
		among := WatchGraph{}.Among(v, part)
		for a := range part {
			for b := range part {
				if got, want := slices.Contains(among(a), b), (WatchGraph{}).Connects(v, part[a], part[b]); got != want {
					t.Errorf("%s: ranks %d and %d: %v, want %v", name, a, b, got, want)
				}
			}
		}
	}
}

func everyRank(n int) (ranks []int) {
	for rank := range n {
		ranks = append(ranks, rank)
	}
	return ranks
}

// TestSparseCandidateNeedsNeighbors: a candidate enters when all its neighbors, and nobody else, confirm
// their links to it.
func TestSparseCandidateNeedsNeighbors(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		sparse := mustParse(t, name)
		l := NewPendingJoins(Policy{World: 9, Elastic: true}, 0)
		l.Topology = sparse
		c := NewArbiter(View{Epoch: 1, Nodes: nodes(9)}, l)
		if err := l.Admit(node(9), AnyRank, false, ""); err != nil {
			t.Fatal(err)
		}
		r, _ := c.Tick(start)
		if r.Invitation == nil || len(r.Invitation.Circle) != 10 {
			t.Fatalf("%s: decision %+v, want an invitation", name, r)
		}
		links := LinksOfInvited(sparse, 9, 10)
		if want := slices.Sorted(slices.Values(sparse.Graph(10).Neighbors(9))); !slices.Equal(links, want) {
			t.Fatalf("%s: links to %v, want %v", name, links, want)
		}
		c.Linked(node(9).ID, r.Invitation.Number)
		for rank := range 9 {
			if !slices.Contains(links, rank) {
				c.Link(node(rank).ID, node(9).ID, true)
			}
		}
		for i, rank := range links {
			if r, ok := c.Tick(start); ok && (r.Quiesce || len(r.Entries) > 0) {
				t.Fatalf("%s: enters with %d of %d neighbors: %+v", name, i, len(links), r)
			}
			c.Link(node(rank).ID, node(9).ID, true)
		}
		if r, _ := c.Tick(start); !r.Quiesce {
			t.Errorf("%s: decision %+v, want a call to quiesce", name, r)
		}
	}
}

// TestSparseCandidateIsInvitedAgain: the neighbors of a candidate change while it waits. It is invited again, and
// enters.
func TestSparseCandidateIsInvitedAgain(t *testing.T) {
	l := NewPendingJoins(Policy{World: 9, Elastic: true}, 0)
	l.Topology = mustParse(t, "k-regular:2")
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(9)}, l)
	if err := l.Admit(node(9), AnyRank, false, ""); err != nil {
		t.Fatal(err)
	}
	first, _ := c.Tick(start)
	c.Linked(node(9).ID, first.Invitation.Number)
	v := View{Epoch: 2, Nodes: nodes(8)} // Rank 8, a neighbor, is gone.
	c.Gone(start, node(8).ID, false, "it ended")
	c.Adopt(v)
	var again Decision
	for now := start; now.Before(start.Add(2 * invitePause)); now = now.Add(invitePause / 4) {
		if again, _ = c.Tick(now); again.Invitation != nil {
			break
		}
	}
	if again.Invitation == nil || again.Invitation.World != 8 {
		t.Fatalf("decision %+v, want another invitation", again)
	}
	c.Linked(node(9).ID, again.Invitation.Number)
	for _, rank := range []int{0, 7} {
		c.Link(node(rank).ID, node(9).ID, true)
	}
	if r, _ := c.Tick(start.Add(2 * invitePause)); !r.Quiesce {
		t.Errorf("decision %+v, want a call to quiesce", r)
	}
}

// TestSparseCandidatesEnterTogether: with any confirmed links of several candidates, those that enter a view
// together have confirmed links to all their neighbors in it, and the first one with all its links enters.
func TestSparseCandidatesEnterTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube"}).Draw(t, "topology")
		sparse, err := topology.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		world, size := rapid.IntRange(1, 12).Draw(t, "world"), rapid.IntRange(1, 6).Draw(t, "candidates")
		stay := View{Nodes: nodes(world)}
		l := NewPendingJoins(Policy{World: world, Elastic: true}, 0)
		l.Topology = sparse
		for i := range size {
			if err := l.Admit(node(world+i), AnyRank, false, ""); err != nil {
				t.Fatal(err)
			}
			c := l.find(node(world + i).ID)
			c.linked, c.confirmed = true, true
			for rank := range world + size {
				if rapid.IntRange(0, 9).Draw(t, "link") > 0 {
					c.reports[node(rank).ID], c.claims[node(rank).ID] = struct{}{}, struct{}{}
				}
			}
		}
		enter := l.ready(stay)
		g := sparse.Graph(world + len(enter))
		for i, n := range enter {
			c := l.find(n.ID)
			for _, rank := range g.Neighbors(world + i) {
				id := node(rank).ID
				if rank >= world {
					id = enter[rank-world].ID
				}
				if _, ok := c.reports[id]; !ok {
					t.Fatalf("%v enter a world of %d, and rank %d has not confirmed its link to %v", enter, world, rank, n)
				}
			}
		}
		first := l.list[0]
		if lacks := l.unconfirmedAlone(first, stay); len(lacks) == 0 && !slices.ContainsFunc(enter, func(n Node) bool { return n.ID == first.node.ID }) {
			t.Fatalf("the first candidate does not enter: %v", enter)
		}
	})
}

// TestSparseWorldIsBounded: candidates enter a ring as long as relays reach from each node to all others: up to 129 nodes. The others
// wait.
func TestSparseWorldIsBounded(t *testing.T) {
	for _, c := range []struct {
		topology    string
		world, want int
	}{{"k-regular:2", 127, 2}, {"k-regular:2", 128, 1}, {"k-regular:2", 129, 0}, {"k-regular:4", 129, 3}, {"hypercube", 129, 3}} {
		l := NewPendingJoins(Policy{World: c.world, Elastic: true}, 0)
		l.Topology = mustParse(t, c.topology)
		all := View{Nodes: nodes(c.world + 3)}
		for i := range 3 {
			if err := l.Admit(node(c.world+i), AnyRank, false, ""); err != nil {
				t.Fatal(err)
			}
			candidate := l.find(node(c.world + i).ID)
			candidate.linked, candidate.confirmed = true, true
			for _, n := range all.Nodes {
				candidate.reports[n.ID], candidate.claims[n.ID] = struct{}{}, struct{}{}
			}
		}
		if got := l.ready(View{Nodes: nodes(c.world)}); len(got) != c.want || l.Growing() != 3 {
			t.Errorf("%s, %d nodes: %d of %d candidates enter, want %d", c.topology, c.world, len(got), l.Growing(), c.want)
		}
	}
}
