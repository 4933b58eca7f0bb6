package membership

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPendingAdmits: who may wait.
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

// enters tells an arbiter of three nodes of a candidate that links itself to them.
func enters(t *testing.T, policy Policy) (c *Arbiter, l *PendingJoins) {
	t.Helper()
	l = NewPendingJoins(policy, 0)
	c = NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, l)
	if err := l.Admit(node(3), AnyRank, false, ""); err != nil {
		t.Fatal(err)
	}
	r, ok := c.Tick(start)
	if !ok || r.Invitation == nil || len(r.Invitation.Circle) != 4 || r.Call {
		t.Fatalf("got decision %+v, want an invitation to a circle of four", r)
	}
	c.Linked(node(3).ID, r.Invitation.Number)
	confirmAll(c, 3, 3)
	return c, l
}

// confirmAll has the first n nodes confirm their links to a candidate.
func confirmAll(c *Arbiter, n, candidate int) {
	for i := range n {
		c.Link(node(i).ID, node(candidate).ID, true)
	}
}

// TestCandidateEnters: one links itself to all nodes, these are asked to come to
// rest, and when all have it has the next rank.
func TestCandidateEnters(t *testing.T) {
	c, l := enters(t, Policy{World: 3, Elastic: true})
	if r, ok := c.Tick(start); !ok || !r.Call || len(r.Entries) > 0 {
		t.Fatalf("got decision %+v, want a call", r)
	}
	if r, ok := c.Tick(start); ok {
		t.Fatalf("got another decision %+v", r)
	}
	for i := range 3 {
		if r, ok := c.Tick(start); ok {
			t.Fatalf("a decision when %d nodes are at rest: %+v", i, r)
		}
		c.Rest(start, node(i).ID, 1, i == 1, time.Minute)
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

// TestRestInVain: the candidate is gone before all are at rest. They get a new view
// all the same.
func TestRestInVain(t *testing.T) {
	c, _ := enters(t, Policy{World: 3, Elastic: true})
	c.Tick(start)
	c.Gone(start, node(3).ID, false, "it is gone")
	for i := range 3 {
		c.Rest(start, node(i).ID, 1, false, 0)
	}
	if r, ok := c.Tick(start); !ok || len(r.Entries) != 1 || r.Entries[0].Kind != Renew {
		t.Errorf("got decision %+v, want that the view is made anew", r)
	}
}

// TestLateForRest: a node that does not come to rest goes, so that the others do
// not wait for ever.
func TestLateForRest(t *testing.T) {
	c, _ := enters(t, Policy{World: 3, Elastic: true})
	c.Tick(start)
	c.Rest(start, node(0).ID, 1, false, time.Minute)
	c.Rest(start.Add(time.Second), node(2).ID, 1, false, time.Minute)
	due, ok := c.Deadline()
	if !ok || !due.Equal(start.Add(time.Minute)) {
		t.Fatalf("it is due at %v (%v), want after a minute", due, ok)
	}
	r, ok := c.Tick(due)
	if _, goes := sum(r); !ok || len(goes) != 1 || goes[0] != node(1).ID || !strings.Contains(r.Reasons[goes[0]], "checkpoint") {
		t.Errorf("got decision %+v, want that node 1 goes", r)
	}
}

// TestSpareIsOvertaken: a spare waits, and another node enters the world before it. It is
// not invited again, and takes the place of one that fails.
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
			t.Fatalf("got decision %+v, want an invitation to three nodes and those that wait", r)
		}
		c.Linked(node(3+i).ID, r.Invitation.Number)
		confirmAll(c, 3+i, 3+i)
		if i == 1 {
			c.Link(node(4).ID, node(3).ID, true) // Both ends say so.
		}
	}
	c.Tick(start)
	for i := range 3 {
		c.Rest(start, node(i).ID, 1, false, 0)
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

// TestTooFew: a world that would be too small waits for a candidate.
func TestTooFew(t *testing.T) {
	l := NewPendingJoins(Policy{World: 3, Min: 3}, 0)
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, l)
	c.Lost(start, node(0).ID, node(2).ID, "no answer")
	c.Gone(start, node(2).ID, false, "it is gone")
	late := start.Add(time.Minute)
	if r, ok := c.Tick(late); !ok || r.Held != 2 || len(r.Entries) > 0 {
		t.Fatalf("got decision %+v, want that two are held", r)
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
		t.Fatalf("got decision %+v, want an invitation to the two that are left", r)
	}
	c.Linked(node(3).ID, r.Invitation.Number)
	confirmAll(c, 2, 3)
	if r, ok := c.Tick(late); !ok || len(r.Entries) != 2 || r.Entries[0].Kind != Fail || r.Entries[1].Kind != Join {
		t.Errorf("got decision %+v, want that one goes and one joins", r)
	}
}

// TestFreshGoes: of two nodes that have lost each other it is not the one that was
// in the world before the other.
func TestFreshGoes(t *testing.T) {
	l := NewPendingJoins(Policy{World: 1, Elastic: true}, 0)
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(1)}, l)
	c.Adopt(View{Epoch: 2, Nodes: nodes(3)})
	for _, by := range []int{1, 2} {
		c.Lost(start, node(by).ID, node(0).ID, "it does not come round")
	}
	due, _ := c.Deadline()
	for i := range 3 {
		c.Heard(due.Add(-1), node(i).ID)
	}
	r, ok := c.Tick(due)
	if _, goes := sum(r); !ok || len(goes) != 2 || goes[0] != node(1).ID {
		t.Errorf("%v go, want both that have only just entered", goes)
	}
}

// TestLeaversWaitToo: nodes that want to leave at rest stay as long as there would be
// too few without them.
func TestLeaversWaitToo(t *testing.T) {
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, NewPendingJoins(Policy{World: 3, Min: 3}, 0))
	for i := range 3 {
		c.Rest(start, node(i).ID, 1, i == 2, time.Minute)
	}
	if r, ok := c.Tick(start); !ok || len(r.Entries) != 1 || r.Entries[0].Kind != Renew {
		t.Errorf("got decision %+v, want that all stay", r)
	}
}

// TestRestOfAnotherView: that a node rests in a view that is over means nothing.
func TestRestOfAnotherView(t *testing.T) {
	c := NewArbiter(View{Epoch: 2, Nodes: nodes(1)}, NewPendingJoins(Policy{World: 1}, 0))
	c.Rest(start, node(0).ID, 1, true, time.Minute)
	if due, ok := c.Deadline(); ok {
		t.Errorf("something is due at %v", due)
	}
}

// TestFewAtRest: if only a few come to rest it is not the others that go.
func TestFewAtRest(t *testing.T) {
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(5)}, NewPendingJoins(Policy{World: 5}, 0))
	c.Rest(start, node(3).ID, 1, false, time.Millisecond)
	r, ok := c.Tick(start.Add(time.Millisecond))
	if _, goes := sum(r); !ok || len(goes) != 1 || goes[0] != node(3).ID {
		t.Errorf("%v go, want the one that rests", goes)
	}
}

// What a candidate has lost before it is invited, as by a seed that takes the place of
// another, are links that it makes anew.
func TestLostBeforeInvitation(t *testing.T) {
	l := NewPendingJoins(Policy{World: 1, Elastic: true}, 0)
	for i := 1; i < 3; i++ {
		if err := l.Admit(node(i), AnyRank, false, ""); err != nil {
			t.Fatal(err)
		}
	}
	world := View{Epoch: 1, Nodes: nodes(1)}
	if l.unlink(start, world, node(2).ID, node(0).ID, "it is silent") {
		t.Error("it counts")
	}
	if out := l.dismiss(start.Add(time.Minute), world); len(out) > 0 {
		t.Errorf("dismissed: %v", out)
	}
}
