package membership

import (
	"slices"
	"testing"
	"time"
)

// TestResumed: an arbiter that was suspended waits again for the answers of nodes that it has not read, and for the nodes that have left
// it. It removes a node that is gone at once.
func TestResumed(t *testing.T) {
	const pause, grace = 10 * time.Second, 15 * time.Second
	id := func(i int) NodeID { return node(i).ID }
	suspended := func() (a *Arbiter, now time.Time) {
		a = NewArbiter(View{Epoch: 1, Nodes: nodes(4)}, NewPendingJoins(Policy{World: 4}, 0))
		a.Lost(start, id(0), id(2), "no answer") // The answers of both arrive during the pause.
		return a, start.Add(pause)
	}
	removed := func(a *Arbiter, at time.Time) []NodeID {
		r, _ := a.Tick(at)
		_, goes := sum(r)
		return goes
	}
	t.Run("without Resumed", func(t *testing.T) {
		a, now := suspended()
		if got := removed(a, now); len(got) == 0 {
			t.Error("no removal is due: the other tests show nothing")
		}
	})
	t.Run("answers are read late", func(t *testing.T) {
		a, now := suspended()
		a.Resumed(now, 0)
		if got := removed(a, now.Add(patience-1)); len(got) > 0 {
			t.Fatalf("%v are removed before they could answer", got)
		}
		a.Heard(now.Add(1), id(0))
		if got := removed(a, now.Add(patience)); !slices.Equal(got, []NodeID{id(2)}) {
			t.Errorf("%v are removed, want the silent node", got)
		}
	})
	t.Run("every turn is late", func(t *testing.T) {
		a, now := suspended()
		for range resumesMax + 1 {
			now = now.Add(patience)
			a.Resumed(now, 0)
			a.Heard(now.Add(1), id(0))
		}
		if got := removed(a, now); !slices.Equal(got, []NodeID{id(2)}) {
			t.Errorf("%v are removed, want the silent node", got)
		}
	})
	t.Run("nodes return", func(t *testing.T) {
		a, now := suspended()
		a.Resumed(now, grace)
		a.Heard(now.Add(1), id(0))
		if got := removed(a, now.Add(grace-1)); len(got) > 0 {
			t.Fatalf("%v are removed before the time to return is over", got)
		}
		if got := removed(a, now.Add(grace)); !slices.Equal(got, []NodeID{id(2)}) {
			t.Errorf("%v are removed, want the silent node", got)
		}
	})
	t.Run("a report of a node that has returned", func(t *testing.T) {
		a, now := suspended()
		a.Resumed(now, grace)
		a.Lost(now.Add(time.Second), id(1), id(3), "no answer")
		for _, i := range []int{0, 1, 2} {
			a.Heard(now.Add(2*time.Second), id(i))
		}
		got := removed(a, now.Add(grace-1))
		if slices.Contains(got, id(3)) {
			t.Errorf("%v are removed before the time to return is over", got)
		}
	})
	t.Run("a process has ended", func(t *testing.T) {
		a, now := suspended()
		a.Resumed(now, grace)
		a.Gone(now.Add(1), id(2), false, "its process has ended")
		if got := removed(a, now.Add(1+settle)); !slices.Equal(got, []NodeID{id(2)}) {
			t.Errorf("%v are removed, want the node that is gone", got)
		}
	})
	t.Run("nodes quiesce", func(t *testing.T) {
		a := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, NewPendingJoins(Policy{World: 3}, 0))
		a.Quiesced(start, id(0), 1, false, time.Second)
		a.Quiesced(start, id(1), 1, false, time.Second)
		now := start.Add(pause)
		a.Resumed(now, grace)
		if got := removed(a, now.Add(grace-1)); len(got) > 0 {
			t.Errorf("%v are removed before their reports could arrive", got)
		}
		if got := removed(a, now.Add(grace)); !slices.Equal(got, []NodeID{id(2)}) {
			t.Errorf("%v are removed, want the node that has not quiesced", got)
		}
	})
}

// TestResumedWithCandidates: a candidate whose links the nodes of the world have not confirmed during a suspension is not dismissed before
// they had the time to return, and then to confirm.
func TestResumedWithCandidates(t *testing.T) {
	const pause, grace = time.Minute, 15 * time.Second
	p := NewPendingJoins(Policy{World: 3, Elastic: true}, 0)
	a := NewArbiter(View{Epoch: 1, Nodes: nodes(3)}, p)
	late := node(3)
	if err := p.Admit(late, AnyRank, false, ""); err != nil {
		t.Fatal(err)
	}
	r, ok := a.Tick(start)
	if !ok || r.Invitation == nil {
		t.Fatal("the candidate is not invited")
	}
	a.Linked(late.ID, r.Invitation.Number)
	a.Tick(start.Add(1))
	now := start.Add(pause)
	a.Resumed(now, grace)
	for _, test := range []struct {
		after     time.Duration
		dismissed bool
	}{{0, false}, {grace + confirmTimeout - 1, false}, {grace + confirmTimeout, true}} {
		a.Heard(now.Add(test.after-1), node(0).ID)
		r, _ := a.Tick(now.Add(test.after))
		if _, dismissed := r.Dismissed[late.ID]; dismissed != test.dismissed {
			t.Errorf("%v after the suspension: dismissed %v, want %v", test.after, dismissed, test.dismissed)
		}
	}
}
