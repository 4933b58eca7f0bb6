package membership

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// Admit accepts and refuses the right candidates.
func TestPendingAdmits(t *testing.T) {
	for name, test := range map[string]struct {
		policy Policy
		wanted int
		spare  bool
		err    error
	}{
		"elastic":          {Policy{World: 2, Elastic: true}, AnyRank, false, nil},
		"a spare":          {Policy{World: 2}, AnyRank, true, nil},
		"not elastic":      {Policy{World: 2}, AnyRank, false, ErrOver},
		"wants a rank":     {Policy{World: 2, Elastic: true}, 3, false, ErrRank},
		"full for a while": {Policy{World: 2, Elastic: true, Max: 2}, AnyRank, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewPendingJoins(test.policy, 0)
			if err := l.Admit(node(5), test.wanted, test.spare, ""); !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Errorf("got error %v, want %v", err, test.err)
			}
			if err := l.Admit(node(5), test.wanted, test.spare, ""); test.err == nil && !errors.Is(err, ErrReused) {
				t.Errorf("the second time: got error %v, want %v", err, ErrReused)
			}
		})
	}
	l := NewPendingJoins(Policy{Elastic: true}, 0)
	for i := range waitingMax {
		if err := l.Admit(node(i), AnyRank, false, ""); err != nil {
			t.Fatalf("candidate %d: %v", i, err)
		}
	}
	if err := l.Admit(node(waitingMax), AnyRank, false, ""); !errors.Is(err, ErrFull) {
		t.Errorf("one more: got error %v, want %v", err, ErrFull)
	}
	l = NewPendingJoins(Policy{Elastic: true}, 0)
	if err := l.Admit(Node{ID: node(1).ID}, AnyRank, false, ""); !errors.Is(err, ErrAddress) {
		t.Errorf("a node without address: got error %v, want %v", err, ErrAddress)
	}
}

// enters makes an arbiter of three nodes with a candidate that is linked to them.
func enters(t *testing.T, policy Policy) (c *Arbiter, l *PendingJoins) {
	t.Helper()
	l = NewPendingJoins(policy, 0)
	c = NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, l)
	if err := l.Admit(node(3), AnyRank, false, ""); err != nil {
		t.Fatal(err)
	}
	r, ok := c.Tick(start)
	if !ok || r.Invitation == nil || len(r.Invitation.Circle) != 4 || r.Quiesce {
		t.Fatalf("got decision %+v, want an invitation of four nodes", r)
	}
	c.Linked(node(3).ID, r.Invitation.Number)
	confirmAll(c, 3, 3)
	return c, l
}

// confirmAll makes the first n nodes confirm their links to a candidate.
func confirmAll(c *Arbiter, n, candidate int) {
	for i := range n {
		c.Link(node(i).ID, node(candidate).ID, true)
	}
}

// A candidate is linked to all nodes. They are asked to quiesce, and when all have, the
// candidate gets the next rank.
func TestCandidateEnters(t *testing.T) {
	c, l := enters(t, Policy{World: 3, Elastic: true})
	if r, ok := c.Tick(start); !ok || !r.Quiesce || len(r.Entries) > 0 {
		t.Fatalf("got decision %+v, want Quiesce", r)
	}
	if r, ok := c.Tick(start); ok {
		t.Fatalf("got another decision %+v", r)
	}
	for i := range 3 {
		if r, ok := c.Tick(start); ok {
			t.Fatalf("decision when %d nodes have quiesced: %+v", i, r)
		}
		c.Quiesced(start, node(i).ID, 1, i == 1, time.Minute)
	}
	r, ok := c.Tick(start)
	if !ok || len(r.Entries) != 2 || !r.Left[node(1).ID] {
		t.Fatalf("got decision %+v, want that one leaves and one joins", r)
	}
	var s State
	if _, err := s.Apply(Entry{Kind: Form, Nodes: nodes(3)}); err != nil {
		t.Fatal(err)
	}
	v, err := s.ApplyAll(r.Entries)
	if rank, in := v.Rank(node(3).ID); err != nil || !in || rank != 2 || v.Epoch != 3 {
		t.Errorf("got view %+v (%v), want the candidate as rank 2 in epoch 3", v, err)
	}
	c.Adopt(v)
	if l.Waiting() > 0 {
		t.Error("the candidate still waits")
	}
}

// The candidate is gone before all nodes have quiesced. They get a new view
// nevertheless.
func TestQuiesceWithoutEntry(t *testing.T) {
	c, _ := enters(t, Policy{World: 3, Elastic: true})
	c.Tick(start)
	c.Gone(start, node(3).ID, false, "it is gone")
	for i := range 3 {
		c.Quiesced(start, node(i).ID, 1, false, 0)
	}
	if r, ok := c.Tick(start); !ok || len(r.Entries) != 1 || r.Entries[0].Kind != Renew {
		t.Errorf("got decision %+v, want a Renew entry", r)
	}
}

// A node that does not quiesce in time is removed, so that the others do not wait for
// ever.
func TestLateToQuiesce(t *testing.T) {
	c, _ := enters(t, Policy{World: 3, Elastic: true})
	c.Tick(start)
	c.Quiesced(start, node(0).ID, 1, false, time.Minute)
	c.Quiesced(start.Add(time.Second), node(2).ID, 1, false, time.Minute)
	due, ok := c.Deadline()
	if !ok || !due.Equal(start.Add(time.Minute)) {
		t.Fatalf("it is due at %v (%v), want after a minute", due, ok)
	}
	r, ok := c.Tick(due)
	if _, goes := sum(r); !ok || len(goes) != 1 || goes[0] != node(1).ID || !strings.Contains(r.Reasons[goes[0]], "has not called Node.Reconfigure") {
		t.Errorf("got decision %+v, want that node 1 goes", r)
	}
}

// A spare waits, and another node enters the world before it. The spare is invited
// again only to the new node, and replaces one that fails.
func TestSpareIsOvertaken(t *testing.T) {
	l := NewPendingJoins(Policy{World: 3, Elastic: true}, 0)
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, l)
	var s State
	if _, err := s.Apply(Entry{Kind: Form, Nodes: nodes(3)}); err != nil {
		t.Fatal(err)
	}
	for i, spare := range []bool{true, false} {
		if err := l.Admit(node(3+i), AnyRank, spare, ""); err != nil {
			t.Fatal(err)
		}
		r, ok := c.Tick(start)
		if !ok || r.Invitation == nil || r.Invitation.World != 3 || len(r.Invitation.Circle) != 4+i {
			t.Fatalf("got decision %+v, want an invitation to three nodes and the waiting candidates", r)
		}
		c.Linked(node(3+i).ID, r.Invitation.Number)
		confirmAll(c, 3+i, 3+i)
		if i == 1 {
			c.Link(node(4).ID, node(3).ID, true) // Both ends report the link.
		}
	}
	c.Tick(start)
	for i := range 3 {
		c.Quiesced(start, node(i).ID, 1, false, 0)
	}
	for _, want := range [][]int{{0, 1, 2, 4}, {0, 4, 3}} {
		r, ok := c.Tick(start)
		v, err := s.ApplyAll(r.Entries)
		var list []NodeID
		for _, i := range want {
			list = append(list, node(i).ID)
		}
		if !ok || err != nil || !slices.Equal(ids(v), list) {
			t.Fatalf("got decision %+v (%v), want nodes %v", r, err, want)
		}
		c.Adopt(v)
		if r, ok := c.Tick(start); ok {
			t.Fatalf("got another decision %+v", r)
		}
		for _, i := range []int{1, 2} {
			c.Gone(start.Add(-settle), node(i).ID, true, "it left")
		}
	}
}

// A world that would be too small waits for a candidate.
func TestTooFew(t *testing.T) {
	l := NewPendingJoins(Policy{World: 3, Min: 3}, 0)
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, l)
	c.Lost(start, node(0).ID, node(2).ID, "no answer")
	c.Gone(start, node(2).ID, false, "it is gone")
	late := start.Add(time.Minute)
	if r, ok := c.Tick(late); !ok || r.TooFew != 2 || len(r.Entries) > 0 {
		t.Fatalf("got decision %+v, want TooFew of 2", r)
	}
	if r, ok := c.Tick(late); ok {
		t.Fatalf("got another decision %+v", r)
	}
	if due, ok := c.Deadline(); ok {
		t.Fatalf("something is due at %v", due)
	}
	if err := l.Admit(node(3), AnyRank, true, ""); err != nil {
		t.Fatal(err)
	}
	r, ok := c.Tick(late)
	if !ok || r.Invitation == nil || len(r.Invitation.Circle) != 3 {
		t.Fatalf("got decision %+v, want an invitation to the remaining two", r)
	}
	c.Linked(node(3).ID, r.Invitation.Number)
	confirmAll(c, 2, 3)
	if r, ok := c.Tick(late); !ok || len(r.Entries) != 2 || r.Entries[0].Kind != Fail || r.Entries[1].Kind != Join {
		t.Errorf("got decision %+v, want that one goes and one joins", r)
	}
}

// Of two nodes that have lost each other, the newcomer is removed.
func TestNewcomerIsRemoved(t *testing.T) {
	l := NewPendingJoins(Policy{World: 1, Elastic: true}, 0)
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(1)}, l)
	c.Adopt(View{Epoch: 2, Nodes: nodes(3)})
	for _, by := range []int{1, 2} {
		c.Lost(start, node(by).ID, node(0).ID, "no answer")
	}
	due, _ := c.Deadline()
	for i := range 3 {
		c.Heard(due.Add(-1), node(i).ID)
	}
	r, ok := c.Tick(due)
	if _, goes := sum(r); !ok || len(goes) != 2 || goes[0] != node(1).ID {
		t.Errorf("%v are removed, want both newcomers", goes)
	}
}

// Quiesced nodes that want to leave stay while there would be too few without them.
func TestLeaversWaitToo(t *testing.T) {
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, NewPendingJoins(Policy{World: 3, Min: 3}, 0))
	for i := range 3 {
		c.Quiesced(start, node(i).ID, 1, i == 2, time.Minute)
	}
	if r, ok := c.Tick(start); !ok || len(r.Entries) != 1 || r.Entries[0].Kind != Renew {
		t.Errorf("got decision %+v, want that all stay", r)
	}
}

// A report that a node has quiesced in an earlier view has no effect.
func TestQuiescedInAnotherView(t *testing.T) {
	c := NewArbiter(View{Epoch: 2, Nodes: nodes(1)}, NewPendingJoins(Policy{World: 1}, 0))
	c.Quiesced(start, node(0).ID, 1, true, time.Minute)
	if due, ok := c.Deadline(); ok {
		t.Errorf("something is due at %v", due)
	}
}

// If only a few nodes have quiesced in time, these are removed and not the others.
func TestFewQuiesced(t *testing.T) {
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(5)}, NewPendingJoins(Policy{World: 5}, 0))
	c.Quiesced(start, node(3).ID, 1, false, time.Millisecond)
	r, ok := c.Tick(start.Add(time.Millisecond))
	if _, goes := sum(r); !ok || len(goes) != 1 || goes[0] != node(3).ID {
		t.Errorf("%v are removed, want the quiesced one", goes)
	}
}

// Losses that a candidate has reported before its invitation, as to a seed that
// replaces another, have no effect: it makes new links.
func TestLostBeforeInvitation(t *testing.T) {
	l := NewPendingJoins(Policy{World: 1, Elastic: true}, 0)
	for i := 1; i < 3; i++ {
		if err := l.Admit(node(i), AnyRank, false, ""); err != nil {
			t.Fatal(err)
		}
	}
	world := View{Epoch: 1, Nodes: nodes(1)}
	if l.unlink(start, world, node(2).ID, node(0).ID, "it is silent") {
		t.Error("the loss counts")
	}
	if out := l.dismiss(start.Add(time.Minute), world, nil); len(out) > 0 {
		t.Errorf("dismissed: %v", out)
	}
}

// A candidate on another host takes the place of a member that lives: the member is removed for that reason, even if it connects to the
// seed again. It also replaces a candidate with the same place.
func TestFence(t *testing.T) {
	place := func(i int, host string) Node {
		n := node(i)
		n.Place, n.Host = "train-2", host
		return n
	}
	world := func() View { return View{Epoch: 1, Nodes: append(nodes(2), place(2, "a"))} }
	l := NewPendingJoins(Policy{World: 3, Elastic: true}, 0)
	c := NewArbiter(world(), l)
	admit := func(n Node) {
		t.Helper()
		if err := l.Admit(n, AnyRank, false, ""); err != nil {
			t.Fatal(err)
		}
	}
	admit(place(3, "a"))
	if r, _ := c.Tick(start); len(r.Entries) > 0 {
		t.Errorf("a process on the same host: decision %+v", r)
	}
	if due, ok := c.deadline(); ok {
		t.Errorf("a process on the same host: a view is due at %v", due)
	}
	admit(place(4, "b"))
	want := "10.0.0.4:7000 (host4:1004) has taken its place train-2 on another host"
	if r, _ := c.Tick(start); r.Dismissed[node(3).ID] != want || len(r.Entries) > 0 {
		t.Errorf("the candidate before: decision %+v, want that it is dismissed: %s", r, want)
	}
	c.Reconnected(start, node(2).ID)
	due, ok := c.deadline()
	if !ok || due != start.Add(settle) {
		t.Errorf("the next view is due at %v, %v, want after %v", due, ok, settle)
	}
	r, _ := c.Tick(due)
	if kind, goes := sum(r); kind != Fail || !slices.Equal(goes, []NodeID{node(2).ID}) || r.Left[node(2).ID] || r.Reasons[node(2).ID] != want {
		t.Errorf("decision %+v, want that node 2 is removed: %s", r, want)
	}

	// A node that has said goodbye has left, and has not been removed.
	l = NewPendingJoins(Policy{World: 3, Elastic: true}, 0)
	c = NewArbiter(world(), l)
	c.Gone(start, node(2).ID, true, "it left")
	admit(place(4, "b"))
	if r, _ := c.Tick(start.Add(settle)); !r.Left[node(2).ID] || r.Reasons[node(2).ID] != "it left" {
		t.Errorf("decision %+v, want that node 2 has left", r)
	}
}
