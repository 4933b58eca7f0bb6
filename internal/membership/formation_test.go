package membership

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_000_000, 0)

func newFormation(t testing.TB, world int) *Formation {
	t.Helper()
	f, err := NewFormation(world, 30*time.Second, start)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// admit admits the i-th node.
func admit(t testing.TB, f *Formation, i, wanted int) Step {
	t.Helper()
	s, err := f.Admit(start, node(i), wanted)
	if err != nil || s.Err != nil {
		t.Fatalf("node %d: refused (%v), formation %v", i, err, s.Err)
	}
	return s
}

func contains(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %q, want one that contains %q", err, p)
		}
	}
}

func TestFormation(t *testing.T) {
	f := newFormation(t, 3)
	admit(t, f, 0, AnyRank)
	admit(t, f, 1, AnyRank)
	if f.Phase() != Gathering || f.Joined() != 2 {
		t.Fatalf("phase %v with %d", f.Phase(), f.Joined())
	}
	s := admit(t, f, 2, AnyRank)
	if s.Form == nil || s.Form.Kind != Form || f.Phase() != Connecting {
		t.Fatalf("step %v, phase %v", s, f.Phase())
	}
	var state State
	v, err := state.Apply(*s.Form)
	if err != nil || v.Epoch != 1 || !slices.Equal(ids(v), ids(View{Nodes: nodes(3)})) {
		t.Fatalf("view %v (%v)", v, err)
	}
	for i := range 3 {
		s := f.Ready(start, node(i).ID)
		f.Ready(start, node(i).ID) // The second report has no effect.
		if s.Formed != (i == 2) || s.Err != nil {
			t.Errorf("after %d are ready: %v", i+1, s)
		}
	}
	if f.Phase() != Formed {
		t.Errorf("phase %v", f.Phase())
	}
	// From now on no input has an effect.
	if s := f.Tick(start.Add(time.Hour)); s != (Step{}) {
		t.Errorf("a deadline after the world has formed: %v", s)
	}
	if s := f.Gone(start, node(1).ID, "x"); s != (Step{}) {
		t.Errorf("a member that goes after the world has formed: %v", s)
	}
	_, err = f.Admit(start, node(9), AnyRank)
	if !errors.Is(err, ErrOver) {
		t.Errorf("late candidate: error %v, want %v", err, ErrOver)
	}
}

// Wanted ranks are given, and the other candidates get ranks in the order of joining.
func TestFormationRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 20).Draw(t, "world")
		perm := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range world {
				if !yield(i) {
					return
				}
			}
		})).Draw(t, "ranks")
		f, _ := NewFormation(world, 0, start)
		wanted := make([]int, world)
		var form *Entry
		for i := range world {
			wanted[i] = AnyRank
			if rapid.Bool().Draw(t, "wants") {
				wanted[i] = perm[i]
			}
			s, err := f.Admit(start, node(i), wanted[i])
			if err != nil || s.Err != nil {
				t.Fatal(err, s.Err)
			}
			form = s.Form
		}
		if form == nil || len(form.Nodes) != world {
			t.Fatalf("entry %v, want %d nodes", form, world)
		}
		v := View{Nodes: form.Nodes}
		last := -1
		for i, w := range wanted {
			r, ok := v.Rank(node(i).ID)
			if !ok || w != AnyRank && r != w {
				t.Fatalf("node %d wanted rank %d, got %d (%v)", i, w, r, ok)
			}
			if w == AnyRank {
				if r < last {
					t.Fatalf("node %d came later but got rank %d, before %d", i, r, last)
				}
				last = r
			}
		}
	})
}

// A process that its launcher has started again on another host takes the place of the one before, as long as ranks are not given.
func TestFormationReplaces(t *testing.T) {
	f := newFormation(t, 2)
	admit(t, f, 0, 1)
	f.places[0].node.Place = "train-1"
	again := node(1)
	again.Place = "train-1"
	if s, err := f.Admit(start, again, 1); err != nil || s != (Step{Replaced: node(0).ID}) {
		t.Fatalf("step %v, error %v, want that node 0 is replaced", s, err)
	}
	if s := f.Gone(start, node(0).ID, "late"); s != (Step{}) || f.Joined() != 1 {
		t.Errorf("the end of the replaced node: step %v, %d nodes", s, f.Joined())
	}
	if s := admit(t, f, 2, AnyRank); s.Form == nil || !slices.Equal(ids(View{Nodes: s.Form.Nodes}), []NodeID{node(2).ID, again.ID}) {
		t.Errorf("step %v, want a world of node 2 and the successor", s)
	}
	third := node(3)
	third.Place = "train-1"
	if _, err := f.Admit(start, third, 1); !errors.Is(err, ErrFull) {
		t.Errorf("a successor after the ranks are given: error %v, want %v", err, ErrFull)
	}
}

func TestFormationRefuses(t *testing.T) {
	f := newFormation(t, 3)
	admit(t, f, 0, 2)
	refused := func(n Node, wanted int, want error, parts ...string) {
		t.Helper()
		s, err := f.Admit(start, n, wanted)
		if !errors.Is(err, want) || s != (Step{}) {
			t.Errorf("error %v, want %v; step %v", err, want, s)
		}
		contains(t, err, parts...)
	}
	refused(node(1), 2, ErrRank, "2 is already taken by 10.0.0.0:7000 (host0:1000)")
	same := node(1)
	same.Name = node(0).Name
	refused(same, 2, ErrRank, "2 is already taken")
	f.places[0].node.Place, same.Place, same.Host = "train-2", "train-2", node(0).Host
	refused(same, 2, ErrRank, "2 is already taken")
	refused(node(1), 3, ErrRank, "3 is not below the world's size of 3")
	refused(node(1), -2, ErrRank)
	refused(node(0), AnyRank, ErrReused)
	refused(Node{ID: NodeID{9}, Name: "x:1"}, AnyRank, ErrAddress, "x:1")
	admit(t, f, 1, AnyRank)
	admit(t, f, 2, 1)
	refused(node(3), AnyRank, ErrFull, "all 3 places are taken")
	refused(node(3), 7, ErrRank)
	if f.Phase() != Connecting {
		t.Errorf("phase %v: refused candidates have changed the formation", f.Phase())
	}
}

func TestCandidateIsReplaced(t *testing.T) {
	f := newFormation(t, 2)
	admit(t, f, 0, 1)
	if s := f.Gone(start, node(0).ID, "killed"); s != (Step{}) || f.Joined() != 0 {
		t.Fatalf("step %v, %d joined", s, f.Joined())
	}
	f.Gone(start, node(0).ID, "again")
	admit(t, f, 0, 1) // Its rank is still free.
	f.Gone(start, node(0).ID, "for good")
	admit(t, f, 1, 1)
	if s := admit(t, f, 2, AnyRank); s.Form == nil || s.Form.Nodes[1].ID != node(1).ID {
		t.Errorf("step %v", s)
	}
}

func TestMemberGoesWhileConnecting(t *testing.T) {
	f := newFormation(t, 2)
	admit(t, f, 0, AnyRank)
	admit(t, f, 1, AnyRank)
	s := f.Gone(start, node(1).ID, "its conn broke")
	contains(t, s.Err, "rank 1 10.0.0.1:7000 (host1:1001) went away", "its conn broke")
	if f.Phase() != Failed || !errors.Is(f.err, s.Err) {
		t.Errorf("phase %v, error %v", f.Phase(), f.err)
	}
}

// connecting returns a Formation of members that connect to each other.
func connecting(t testing.TB, world int) *Formation {
	t.Helper()
	f := newFormation(t, world)
	for i := range world {
		admit(t, f, i, AnyRank)
	}
	return f
}

// unable reports that the member by cannot reach the member to.
func unable(t testing.TB, f *Formation, by, to int, reason string) {
	t.Helper()
	if s, _ := f.Unable(start, node(by).ID, node(to).ID, reason); s != (Step{}) {
		t.Fatalf("before node %d has answered: %v", to, s)
	}
}

func TestUnableNamesBoth(t *testing.T) {
	f := connecting(t, 3)
	unable(t, f, 2, 0, "no answer within 5s")
	for i := range 3 {
		if s := f.Ready(start, node(i).ID); s.Formed {
			t.Fatalf("the world has formed, although node 2 cannot reach node 0")
		}
	}
	for _, s := range []Step{f.Believe(start, start.Add(-1), node(0).ID), f.Believe(start, start, node(1).ID), f.Believe(start, start, node(7).ID)} {
		if s != (Step{}) {
			t.Errorf("the answer to an earlier ping, or of another node: %v", s)
		}
	}
	s := f.Believe(start, start, node(0).ID)
	contains(t, s.Err, "rank 2 10.0.0.2:7000 (host2:1002) cannot reach rank 0 10.0.0.0:7000 (host0:1000): no answer within 5s")
	if s := f.Ready(start, node(1).ID); s != (Step{}) {
		t.Errorf("after it has failed: %v", s)
	}

	f = connecting(t, 1)
	s, isNews := f.Unable(start, node(0).ID, node(7).ID, "x")
	if contains(t, s.Err, "not in the world"); isNews {
		t.Error("the seed pings a node outside the world")
	}
}

// The first reports about a member that goes away come before the seed knows that it is gone.
func TestGoneExplainsUnable(t *testing.T) {
	f := connecting(t, 4)
	unable(t, f, 2, 1, "closed by the peer")
	unable(t, f, 3, 2, "closed by the peer") // Node 2 has given up.
	f.Believe(start, start, node(2).ID)
	contains(t, f.Gone(start, node(1).ID, "it left").Err, "rank 1 10.0.0.1:7000 (host1:1001) went away before the world was formed: it left")
}

// A member that cannot reach another one gives up, and others may report that before.
func TestFirstOfSeveralReports(t *testing.T) {
	f := connecting(t, 4)
	unable(t, f, 0, 1, "closed by the peer")
	unable(t, f, 1, 2, "no route")
	unable(t, f, 1, 3, "closed by the peer") // A second report of a member changes nothing.
	f.Believe(start, start, node(1).ID)
	contains(t, f.Believe(start, start, node(2).ID).Err, "rank 1 10.0.0.1:7000 (host1:1001) cannot reach rank 2", "no route")

	if _, isNews := f.Unable(start, node(1).ID, node(0).ID, "x"); isNews {
		t.Error("a report after the formation has failed is news")
	}

	f = connecting(t, 3)
	unable(t, f, 0, 2, "closed by the peer")
	unable(t, f, 2, 2, "too many open files")
	contains(t, f.Believe(start, start, node(2).ID).Err, "rank 2 10.0.0.2:7000 (host2:1002) cannot link itself to the others: too many open files")

	f = connecting(t, 3)
	for want, isNews := range []bool{true, false} {
		if _, got := f.Unable(start, node(2).ID, node(want).ID, "x"); got != isNews {
			t.Errorf("report %d is news: %v", want, got)
		}
	}

	f = connecting(t, 2)
	unable(t, f, 1, 0, "no route")
	unable(t, f, 0, 1, "refused")
	f.Believe(start, start, node(1).ID)
	contains(t, f.Believe(start, start, node(0).ID).Err, "rank 0 10.0.0.0:7000 (host0:1000) cannot reach rank 1", "refused")
}

func TestUnexpectedInputs(t *testing.T) {
	f := newFormation(t, 2)
	admit(t, f, 0, AnyRank)
	for _, id := range []NodeID{node(0).ID, node(7).ID} {
		if s := f.Ready(start, id); s != (Step{}) {
			t.Errorf("ready: %v", s)
		}
		if s, isNews := f.Unable(start, id, node(0).ID, "x"); s != (Step{}) || isNews {
			t.Errorf("unable: %v, news %v", s, isNews)
		}
	}
	admit(t, f, 1, AnyRank)
	if s := f.Ready(start, node(0).ID); s.Formed {
		t.Error("a report before the first view had an effect")
	}
}

func TestDeadline(t *testing.T) {
	late := start.Add(30 * time.Second)
	t.Run("nobody", func(t *testing.T) {
		f := newFormation(t, 4)
		if at, ok := f.Deadline(); !ok || at != late {
			t.Errorf("deadline %v (%v)", at, ok)
		}
		if s := f.Tick(late.Add(-1)); s.Err != nil {
			t.Error(s.Err)
		}
		contains(t, f.Tick(late).Err, "0 of 4 nodes joined within 30s")
		if _, ok := f.Deadline(); ok {
			t.Error("a deadline is left")
		}
	})
	t.Run("some", func(t *testing.T) {
		f := newFormation(t, 4)
		for i := range 3 {
			admit(t, f, i, AnyRank)
		}
		contains(t, f.Tick(late).Err, "3 of 4 nodes joined within 30s", "10.0.0.0:7000 (host0:1000)", "host2:1002", "missing 1")
	})
	t.Run("ranks", func(t *testing.T) {
		f := newFormation(t, 4)
		admit(t, f, 0, 3)
		admit(t, f, 1, 0)
		contains(t, f.Tick(late).Err, "rank 3 10.0.0.0:7000", "rank 0 10.0.0.1:7000", "missing 2 (rank 1, 2)")
	})
	t.Run("connecting", func(t *testing.T) {
		f := newFormation(t, 3)
		for i := range 3 {
			admit(t, f, i, AnyRank)
		}
		f.Ready(start, node(1).ID)
		err := f.Tick(late).Err
		contains(t, err, "rank 0", "rank 2 10.0.0.2:7000 (host2:1002)")
		if strings.Contains(err.Error(), "rank 1") {
			t.Errorf("error %q names a node that was ready", err)
		}
	})
	t.Run("many", func(t *testing.T) {
		f := newFormation(t, 1000)
		for i := range 900 {
			admit(t, f, i, AnyRank)
		}
		err := f.Tick(late).Err
		contains(t, err, "900 of 1000", "and 884 more", "missing 100")
		if len(err.Error()) > 2000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	})
	t.Run("with any input", func(t *testing.T) {
		f := newFormation(t, 2)
		s, err := f.Admit(late, node(0), AnyRank)
		if s.Err == nil || !errors.Is(err, ErrOver) {
			t.Errorf("step %v, error %v", s, err)
		}
	})
	t.Run("none", func(t *testing.T) {
		f, _ := NewFormation(2, 0, start)
		if s := f.Tick(start.AddDate(10, 0, 0)); s.Err != nil {
			t.Error(s.Err)
		}
	})
}

func TestAbort(t *testing.T) {
	f := newFormation(t, 2)
	reason := errors.New("the seed was closed")
	if s := f.Abort(reason); !errors.Is(s.Err, reason) || f.Phase() != Failed {
		t.Errorf("step %v, phase %v", s, f.Phase())
	}
	if s := f.Abort(reason); s != (Step{}) {
		t.Errorf("twice: %v", s)
	}
	some := newFormation(t, 3)
	admit(t, some, 0, 1)
	contains(t, some.Abort(reason).Err, "the seed was closed; 1 of 3 nodes had joined: rank 1 10.0.0.0:7000 (host0:1000); missing 2 (rank 0, 2)")
	_, err := f.Admit(start, node(0), AnyRank)
	if !errors.Is(err, ErrOver) || !errors.Is(err, reason) {
		t.Errorf("error %v, want %v because %v", err, ErrOver, reason)
	}
}

// A node with only loopback addresses is accepted alone, and named when a node on
// another host joins.
func TestLoopbackOnlyAcrossHosts(t *testing.T) {
	local := func(i int, host string) Node {
		n := node(i)
		n.Addrs, n.Host = []string{"127.0.0.1:700" + string(rune('0'+i))}, host
		return n
	}
	f := newFormation(t, 2)
	f.Admit(start, local(0, "a"), AnyRank)
	if s, err := f.Admit(start, local(1, "a"), AnyRank); err != nil || s.Form == nil {
		t.Errorf("one host: %v, %v", s, err)
	}
	f = newFormation(t, 2)
	f.Admit(start, node(0), AnyRank)
	s, err := f.Admit(start, local(1, "a"), AnyRank)
	if err != nil || !errors.Is(s.Err, ErrAddress) {
		t.Errorf("two hosts: %v, %v, want %v", s, err, ErrAddress)
	}
	contains(t, s.Err, "rank 1 127.0.0.1:7001 (host1:1001) has only loopback addresses", "rank 0 10.0.0.0:7000")
}

func TestEmptyWorld(t *testing.T) {
	for _, n := range []int{0, -1} {
		if _, err := NewFormation(n, 0, start); err == nil {
			t.Errorf("a world of %d", n)
		}
	}
}
