package blame

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const self = 0

var errLoss, errSilent = errors.New("the loss"), errors.New("no answer")

func id(rank int) membership.NodeID { return membership.NodeID{byte(rank + 1)} }

// peers returns what rank 0 knows of ranks that have changed. Those in between are alive and were not asked.
func peers(change map[int]Peer) *Peers {
	s := &Peers{Self: id(self), NoAnswer: errSilent}
	for _, rank := range []int{4, 1, 3, 2} { // slots need not be in the order of ranks
		p := change[rank]
		p.Slot, p.Rank, p.Node = 10+rank, rank, &membership.Node{ID: id(rank)}
		s.List = append(s.List, p)
	}
	return s
}

// told is the reason of a rank that has named another one, and has lost it or not.
func told(cause int, lost bool) *Reason {
	return &Reason{Cause: id(cause), Lost: lost, Text: "it failed"}
}

// TestFind: rank 0 has lost rank 1.
func TestFind(t *testing.T) {
	asked, answered := Peer{Asked: true}, Peer{Asked: true, Answered: true}
	broken := func(r *Reason) Peer { return Peer{End: Broken, Err: errLoss, Asked: true, Reason: r} }
	early := func(loss *Cause) Peer { return Peer{End: Broken, Err: errLoss, Failed: true, Loss: loss} }
	const loss, silent, noReason = "the loss", "no answer", "it told no reason: the loss"
	const explained, explainedToo = `rank 1 has ended after its error "it failed" (the loss)`, `rank 2 has ended after its error "it failed" (the loss)`
	for name, test := range map[string]struct {
		change   map[int]Peer
		cause    int // or one of the suspects
		err      string
		suspects map[int]string
	}{
		"all others have answered":                     {map[int]Peer{1: broken(nil), 2: answered, 3: answered, 4: answered}, 1, loss, nil},
		"the others were not asked":                    {map[int]Peer{1: broken(nil)}, 1, loss, nil},
		"a rank has left meanwhile":                    {map[int]Peer{1: broken(nil), 3: {Asked: true, End: Left}}, 1, loss, nil},
		"a rank is silent":                             {map[int]Peer{1: broken(nil), 2: answered, 3: asked}, 1, loss, map[int]string{1: noReason, 3: silent}},
		"a rank is lost as well":                       {map[int]Peer{1: broken(nil), 3: broken(nil)}, 1, loss, map[int]string{1: noReason, 3: noReason}},
		"a rank is lost that had answered":             {map[int]Peer{1: broken(nil), 3: {Asked: true, Answered: true, End: Broken, Err: errLoss}}, 1, loss, nil},
		"a lost rank names another one":                {map[int]Peer{1: broken(nil), 3: broken(told(2, false))}, 1, loss, nil},
		"a rank was lost before, its cause is unknown": {map[int]Peer{1: broken(nil), 3: early(nil)}, 1, loss, map[int]string{1: noReason, 3: noReason}},
		"a rank was lost before, with the same suspects": {
			map[int]Peer{1: broken(nil), 3: early(&Cause{Suspects: []Suspect{{Node: membership.Node{ID: id(1)}}}})}, 1, loss, map[int]string{1: noReason, 3: noReason},
		},
		"a rank was lost before, for another cause":  {map[int]Peer{1: broken(nil), 3: early(&Cause{Node: id(3)})}, 1, loss, nil},
		"it has named a rank that has left":          {map[int]Peer{1: broken(told(2, false)), 2: asked}, 2, explained, nil},
		"it has named an unknown rank":               {map[int]Peer{1: broken(told(9, true))}, 1, explained, nil},
		"it has named this node, which lives":        {map[int]Peer{1: broken(told(self, false))}, 1, explained, nil},
		"it has lost this node":                      {map[int]Peer{1: broken(told(self, true)), 3: asked}, 1, loss, nil},
		"it has lost a rank that answers":            {map[int]Peer{1: broken(told(2, true)), 2: answered, 3: asked}, 1, loss, nil},
		"it has lost a rank that is silent":          {map[int]Peer{1: broken(told(2, true)), 2: asked, 3: asked}, 1, explained, map[int]string{1: explained, 2: silent}},
		"it has lost a rank that is lost":            {map[int]Peer{1: broken(told(2, true)), 2: broken(nil), 3: answered}, 2, explained, nil},
		"it has lost a rank that is lost, beside":    {map[int]Peer{1: broken(told(2, true)), 2: broken(nil), 3: broken(nil)}, 2, explained, map[int]string{2: noReason, 3: noReason}},
		"reasons lead to a lost rank that names one": {map[int]Peer{1: broken(told(2, true)), 2: broken(told(3, false))}, 3, explainedToo, nil},
		"two ranks have named each other": {
			map[int]Peer{1: broken(told(2, true)), 2: broken(told(1, true)), 3: asked}, 2, explainedToo,
			map[int]string{1: explained, 2: explainedToo},
		},
		"it has failed for a reason of its own": {map[int]Peer{1: broken(told(1, false)), 3: asked}, 1, "it failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := peers(test.change).Find(id(1), errLoss)
			if c.Node != id(test.cause) || c.Err.Error() != test.err {
				t.Errorf("got %v: %v; want rank %d: %s", c.Node, c.Err, test.cause, test.err)
			}
			if (c.Suspects == nil) != (test.suspects == nil) || len(c.Suspects) != len(test.suspects) {
				t.Fatalf("suspects %v, want %v", c.Suspects, test.suspects)
			}
			if !slices.IsSortedFunc(c.Suspects, func(a, b Suspect) int { return a.rank - b.rank }) {
				t.Errorf("suspects %v are not in the order of their ranks", c.Suspects)
			}
			for _, s := range c.Suspects {
				if want := test.suspects[s.rank]; s.Node.ID != id(s.rank) || s.Err.Error() != want {
					t.Errorf("suspect %d: %v, want %q", s.rank, s.Err, want)
				}
			}
		})
	}
}

// TestFindForgotten: the lost node is in no view any more.
func TestFindForgotten(t *testing.T) {
	if c := peers(nil).Find(id(9), errLoss); c.Node != id(9) || c.Err != errLoss || c.Suspects != nil {
		t.Errorf("got %+v", c)
	}
}

// TestBlames: communicators with the named rank blame it, unless that is this node, is the lost one, or is unknown.
func TestBlames(t *testing.T) {
	for cause, want := range map[int]int{2: 12, self: -1, 9: -1, 1: 11} {
		e := peers(map[int]Peer{1: {Reason: told(cause, false)}}).Explain(id(1), errLoss)
		if got := e.Blames(); got != want || !errors.Is(e, errLoss) {
			t.Errorf("rank 1 has named rank %d: slot %d is blamed, want %d; the error: %v", cause, got, want, e)
		}
	}
}

// TestReason: an error explains the end of its node for some time, and the same cause is told again later.
func TestReason(t *testing.T) {
	now := time.Unix(1000, 0)
	since := func(d time.Duration) *Reason { return &Reason{Cause: id(2), Lost: true, At: now.Add(-d)} }
	for name, test := range map[string]struct {
		r        *Reason
		explains bool
	}{
		"none": {nil, false}, "no cause": {&Reason{At: now}, false}, "new": {since(0), true}, "old": {since(ReasonMax), false},
	} {
		r := Reason{Cause: id(1), At: now}.Of(test.r)
		if got := test.r.Explains(now); got != test.explains || (r.Cause == id(2) && r.Lost) != test.explains {
			t.Errorf("%s: %v, and the reason of another node is %+v", name, got, r)
		}
	}
	for _, test := range []struct {
		told    *Reason
		repeats bool
	}{{since(0), true}, {since(ReasonMax / 2), false}, {&Reason{Cause: id(1), At: now}, false}, {&Reason{}, false}} {
		if r := (&Reason{Cause: id(2), At: now}); r.Repeats(test.told) != test.repeats {
			t.Errorf("told %+v: repeats %v, want %v", test.told, !test.repeats, test.repeats)
		}
	}
}
