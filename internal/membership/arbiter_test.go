package membership

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An input is a report to an Arbiter: that by has lost its link to to; that by is gone,
// if to is -1; that by is alive, if to is -2.
type input struct {
	after  time.Duration // the input before
	by, to int
	left   bool
}

// decideOn passes inputs to an Arbiter of n nodes. It returns the decision, and its
// time since the first input.
func decideOn(t *testing.T, n int, all ...input) (r Decision, took time.Duration) {
	t.Helper()
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(n)}, NewPendingJoins(Policy{World: n}, 0))
	now := start
	for _, h := range all {
		now = now.Add(h.after)
		if h.to == -2 {
			c.Heard(now, node(h.by).ID)
		} else if h.to < 0 {
			c.Gone(now, node(h.by).ID, h.left, "it is gone")
		} else {
			c.Lost(now, node(h.by).ID, node(h.to).ID, "no answer")
		}
		if _, ok := c.Tick(now); ok && h.after < settle {
			t.Error("decision during new reports")
		}
	}
	due, ok := c.Deadline()
	if !ok {
		return r, 0
	}
	if _, ok := c.Tick(due.Add(-1)); ok {
		t.Error("decision before it is due")
	}
	if r, ok = c.Tick(due); !ok {
		t.Error("no decision when one is due")
	}
	return r, due.Sub(start)
}

// sum returns the kind of the first entry, and all removed nodes in the order of their
// ids.
func sum(r Decision) (kind Kind, goes []NodeID) {
	for i, e := range r.Entries {
		if i == 0 {
			kind = e.Kind
		}
		goes = append(goes, e.IDs...)
	}
	slices.SortFunc(goes, func(a, b NodeID) int { return bytes.Compare(a[:], b[:]) })
	return kind, goes
}

// The right nodes are removed, at the right time.
func TestArbiter(t *testing.T) {
	gone := func(i int) input { return input{by: i, to: -1} }
	lost := func(by, to int) input { return input{by: by, to: to} }
	lives := func(i int) input { return input{by: i, to: -2} }
	for name, test := range map[string]struct {
		n     int
		heard []input
		kind  Kind
		goes  []int
		took  time.Duration
	}{
		"a process dies":                 {4, []input{lost(0, 2), gone(2)}, Fail, []int{2}, settle},
		"the arbiter loses it first":     {4, []input{gone(2), lost(0, 2)}, Fail, []int{2}, settle},
		"two die":                        {5, []input{lost(0, 2), gone(2), lost(0, 1), gone(1)}, Fail, []int{1, 2}, settle},
		"the dead accuse each other":     {5, []input{lost(1, 2), lost(2, 1), gone(1), gone(2)}, Fail, []int{1, 2}, settle},
		"a dead node accuses a live one": {5, []input{lost(1, 2), lost(0, 1), gone(1)}, Fail, []int{1}, settle},
		"a host falls silent":            {5, []input{lost(0, 2), lost(1, 2), lost(3, 2)}, Fail, []int{2}, patience},
		"a silent node accuses all":      {5, []input{lost(2, 0), lost(2, 1), lost(2, 3), lost(0, 2)}, Fail, []int{2}, patience},
		"a link is cut":                  {4, []input{lost(1, 2), lost(2, 1)}, Fail, []int{2}, patience},
		"both ends live":                 {4, []input{lost(1, 2), lives(1), lives(2)}, Fail, []int{2}, cutPatience},
		"only the higher end lives":      {4, []input{lost(2, 1), lives(2)}, Fail, []int{1}, patience},
		"the higher end accuses":         {4, []input{lost(2, 1), lives(1), lives(2)}, Fail, []int{1}, cutPatience},
		"each end accuses the other":     {4, []input{lost(2, 1), lost(1, 2), lives(1), lives(2)}, Fail, []int{2}, cutPatience},
		"a late report, and a cut":       {5, []input{lost(3, 1), lost(4, 2), lost(2, 4)}, Fail, []int{1, 4}, patience},
		"a liar is not preferred":        {5, []input{lost(2, 1), lost(2, 3), lives(1), lives(2), lives(3)}, Fail, []int{2}, cutPatience},
		"new death beside an old cut":    {6, []input{lost(1, 2), {after: patience - settle/2, by: 5, to: 0}}, Fail, []int{2}, patience + settle/2},
		"two links of a node are cut":    {5, []input{lost(0, 3), lost(0, 4)}, Fail, []int{0}, patience},
		"two pairs are cut":              {6, []input{lost(0, 1), lost(3, 4)}, Fail, []int{1, 4}, patience},
		"one leaves":                     {3, []input{{by: 1, to: -1, left: true}}, Leave, []int{1}, settle},
		"one leaves and one dies":        {4, []input{{by: 1, to: -1, left: true}, lost(0, 2), gone(2)}, Fail, []int{1, 2}, settle},
		"only the arbiter lost it":       {4, []input{gone(3)}, 0, nil, 0},
		"and then another dies":          {4, []input{gone(3), lost(0, 1), gone(1)}, Fail, []int{1, 3}, settle},
		"nonsense":                       {2, []input{lost(0, 0), lost(7, 0), lost(0, 7), gone(9)}, 0, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, took := decideOn(t, test.n, test.heard...)
			var want []NodeID
			for _, i := range test.goes {
				want = append(want, node(i).ID)
			}
			if kind, goes := sum(r); kind != test.kind || !slices.Equal(goes, want) || took != test.took {
				t.Errorf("%v of %v after %v, want %v of %v after %v", kind, goes, took, test.kind, want, test.took)
			}
			for _, id := range want {
				if !strings.Contains(r.Reasons[id], "gone") && !strings.Contains(r.Reasons[id], "no answer") {
					t.Errorf("node %v is removed for the reason %q", id, r.Reasons[id])
				}
			}
		})
	}
}

// After a removal, the arbiter forgets reports about the removed nodes and keeps all
// others.
func TestArbiterAdopts(t *testing.T) {
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(5)}, NewPendingJoins(Policy{World: 5}, 0))
	var state State
	view, err := state.Apply(Entry{Kind: Form, Nodes: nodes(5)})
	if err != nil {
		t.Fatal(err)
	}
	now := start
	for i, dead := range []int{1, 3, 0} {
		c.Lost(now, node(2).ID, node(dead).ID, "no answer")
		c.Gone(now, node(dead).ID, false, "it is gone")
		now = now.Add(settle)
		r, ok := c.Tick(now)
		if _, goes := sum(r); !ok || !slices.Equal(goes, []NodeID{node(dead).ID}) {
			t.Fatalf("decision %d: %v %v", i, ok, goes)
		}
		if view, err = state.ApplyAll(r.Entries); err != nil {
			t.Fatal(err)
		}
		c.Adopt(view)
		if _, ok := c.Deadline(); ok {
			t.Error("a decision is due")
		}
	}
	if want := []NodeID{node(2).ID, node(4).ID}; !slices.Equal(ids(view), want) {
		t.Errorf("%v stay, want %v", ids(view), want)
	}
}

// After random reports, no two of the nodes that stay have lost their link, and no node
// is removed that no report names.
func TestArbiterAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 9).Draw(t, "nodes")
		c := NewArbiter(View{Epoch: 1, Nodes: nodes(n)}, NewPendingJoins(Policy{World: n}, 0))
		now, heard, lost := start, make(map[NodeID]bool), make(map[[2]int]bool)
		var state State
		if _, err := state.Apply(Entry{Kind: Form, Nodes: nodes(n)}); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				c.Lost(now, node(a).ID, node(b).ID, "lost")
				if a != b {
					lost[[2]int{a, b}] = true
					heard[node(a).ID], heard[node(b).ID] = true, true
				}
			case 1:
				c.Gone(now, node(a).ID, rapid.Bool().Draw(t, "left"), "gone")
				heard[node(a).ID] = true
			default:
				now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			}
			decideAtRandom(t, c, &state, now, heard)
		}
		for due, ok := c.Deadline(); ok; due, ok = c.Deadline() {
			decideAtRandom(t, c, &state, due, heard)
		}
		view := state.View()
		for link := range lost {
			_, a := view.Rank(node(link[0]).ID)
			_, b := view.Rank(node(link[1]).ID)
			if a && b {
				t.Fatalf("%s stay without a link", fmt.Sprint(link))
			}
		}
	})
}

// decideAtRandom applies the decisions of an arbiter. Only nodes in reports are
// removed.
func decideAtRandom(t *rapid.T, c *Arbiter, state *State, now time.Time, heard map[NodeID]bool) {
	r, ok := c.Tick(now)
	if !ok {
		return
	}
	_, goes := sum(r)
	for _, id := range goes {
		if !heard[id] {
			t.Fatalf("%v is removed without a report", id)
		}
	}
	view, err := state.ApplyAll(r.Entries)
	if err != nil {
		t.Fatalf("invalid decision: %v", err)
	}
	c.Adopt(view)
}
