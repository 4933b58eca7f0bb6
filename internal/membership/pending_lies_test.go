package membership

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A pendingTest is an Arbiter and the candidates for its world.
type pendingTest struct {
	*testing.T
	arbiter *Arbiter
	pending *PendingJoins
	now     time.Time
	world   int
	// Numbers of the invitations, by candidate, and reasons of dismissals.
	index     map[NodeID]int
	invited   map[int]uint64
	dismissed map[int]string
	forgotten int
	called    bool
	away      bool // no node reaches the seed
}

func newPendingTest(t *testing.T, n int) *pendingTest {
	l := NewPendingJoins(Policy{World: n, Elastic: true}, 0)
	return &pendingTest{
		T: t, pending: l, arbiter: NewArbiter(View{Epoch: 1, Nodes: nodes(n)}, l), now: start, world: n,
		index: make(map[NodeID]int), invited: make(map[int]uint64), dismissed: make(map[int]string),
	}
}

func (tr *pendingTest) admit(i int, origin string) {
	tr.Helper()
	tr.index[node(i).ID] = i
	if err := tr.pending.Admit(node(i), AnyRank, false, origin); err != nil {
		tr.Fatal(err)
	}
	tr.tick()
}

// tick applies the decisions that are due.
func (tr *pendingTest) tick() {
	for range 10_000 {
		r, ok := tr.arbiter.Tick(tr.now)
		if !ok {
			return
		}
		tr.forgotten += len(r.Forgotten)
		tr.called = tr.called || r.Quiesce
		for id, why := range r.Dismissed {
			tr.dismissed[tr.index[id]] = why
			delete(tr.invited, tr.index[id])
		}
		if v := r.Invitation; v != nil {
			tr.invited[tr.index[v.Node.ID]] = v.Number
		}
	}
	tr.Fatal("the arbiter does not stop deciding")
}

// pass advances the time, and applies decisions when they are due.
func (tr *pendingTest) pass(d time.Duration) {
	tr.Helper()
	end := tr.now.Add(d)
	for range 10_000 {
		due, ok := tr.arbiter.Deadline()
		if !ok || due.After(end) {
			tr.now = end
			return
		}
		if due.After(tr.now) {
			tr.now = due
		}
		if !tr.away {
			for i := range tr.world {
				tr.arbiter.Heard(tr.now.Add(-1), node(i).ID)
			}
		}
		tr.tick()
	}
	tr.Fatalf("a decision stays due at %v", tr.now.Sub(start))
}

// linked makes a candidate report that it is linked, and some nodes confirm it.
func (tr *pendingTest) linked(i int, by ...int) {
	tr.arbiter.Linked(node(i).ID, tr.invited[i])
	for _, j := range by {
		tr.arbiter.Link(node(j).ID, node(i).ID, true)
	}
	tr.tick()
}

// Of 20 nodes, the six that would watch the candidate must confirm its links, and no
// others.
func TestWatchersConfirm(t *testing.T) {
	tr := newPendingTest(t, 20)
	tr.admit(20, "")
	watchers := Watchers(View{Nodes: nodes(21)}, 20, 0)
	if len(watchers) != WatchersDefault {
		t.Fatalf("%d watchers", len(watchers))
	}
	tr.linked(20, watchers[1:]...)
	if tr.called {
		t.Fatal("the nodes are asked to quiesce before all watchers have confirmed")
	}
	tr.arbiter.Link(node(watchers[0]).ID, node(20).ID, true)
	tr.arbiter.Link(node(watchers[2]).ID, node(20).ID, false)
	tr.tick()
	if tr.called {
		t.Fatal("the nodes are asked to quiesce although a watcher has lost its end of the link")
	}
	tr.arbiter.Link(node(watchers[2]).ID, node(20).ID, true)
	tr.tick()
	if !tr.called {
		t.Error("the nodes are not asked to quiesce when all watchers have confirmed")
	}
}

// A candidate with unconfirmed links is dismissed, with the names of the nodes that have not
// confirmed them, and the other nodes are asked to forget it.
func TestUnconfirmedIsDismissed(t *testing.T) {
	tr := newPendingTest(t, 3)
	tr.admit(3, "")
	tr.linked(3, 1)
	tr.pass(confirmTimeout - time.Millisecond)
	if len(tr.dismissed) > 0 {
		t.Fatalf("dismissed too early: %v", tr.dismissed)
	}
	tr.pass(time.Millisecond)
	why := tr.dismissed[3]
	if !strings.Contains(why, "confirmed by rank 0") || strings.Contains(why, "rank 1") || !strings.Contains(why, "rank 2") || !strings.Contains(why, "held off for 1s") {
		t.Errorf("dismissed: %q, want that ranks 0 and 2 have not confirmed", why)
	}
	if tr.forgotten != 1 {
		t.Errorf("%d candidates are to be forgotten, want 1", tr.forgotten)
	}
}

// Any number of nodes of one origin may enter and leave without being held off.
func TestStalledIsOvertaken(t *testing.T) {
	for _, liars := range []int{1, 10, 500} {
		t.Run(fmt.Sprint(liars), func(t *testing.T) {
			tr := newPendingTest(t, 3)
			for i := range liars {
				tr.admit(3+i, fmt.Sprint("liar ", i))
			}
			honest := 3 + liars
			tr.admit(honest, "honest")
			for range 12 {
				if tr.invited[honest] > 0 {
					break
				}
				tr.pass(invitePause)
			}
			if tr.invited[honest] == 0 {
				t.Fatalf("the honest candidate is not invited after %v", tr.now.Sub(start))
			}
			tr.linked(honest, 0, 1, 2)
			if !tr.called {
				t.Error("the nodes are not asked to quiesce for the honest candidate")
			}
		})
	}
}

// Two candidates that were invited at the same time are not linked to each other. One
// enters, and the other links itself to it before it enters.
func TestUnlinkedAreInvitedAgain(t *testing.T) {
	tr := newPendingTest(t, 2)
	tr.admit(2, "a")
	tr.pass(invitePause)
	tr.admit(3, "b")
	tr.linked(3, 0, 1)
	tr.linked(2, 0, 1)
	for i := range 2 {
		tr.arbiter.Quiesced(tr.now, node(i).ID, 1, false, 0)
	}
	var s State
	if _, err := s.Apply(Entry{Kind: Form, Nodes: nodes(2)}); err != nil {
		t.Fatal(err)
	}
	r, _ := tr.arbiter.Tick(tr.now)
	v, err := s.ApplyAll(r.Entries)
	if err != nil || v.Size() != 3 {
		t.Fatalf("view %v (%v), want one of the two in it", v, err)
	}
	tr.arbiter.Adopt(v)
	first := tr.invited[2]
	other := 2
	if v.Nodes[2].ID == node(2).ID {
		other, first = 3, tr.invited[3]
	}
	tr.tick()
	if tr.invited[other] <= first {
		t.Errorf("node %d is not invited again: %v", other, tr.invited)
	}
}

// While no node of the world answers the seed, a candidate is not to blame that nobody confirms its links. It enters when they
// answer and confirm, and it is dismissed if they answer alone.
func TestUnconfirmedWhileSeedIsAway(t *testing.T) {
	for _, confirms := range []bool{true, false} {
		tr := newPendingTest(t, 2)
		tr.admit(2, "")
		tr.linked(2)
		tr.away = true
		if tr.pass(4 * confirmTimeout); len(tr.dismissed) > 0 {
			t.Fatalf("dismissed: %v", tr.dismissed)
		}
		if tr.away = false; confirms {
			tr.linked(2, 0, 1)
			tr.tick()
		}
		tr.pass(2 * confirmTimeout)
		if tr.called != confirms || (tr.dismissed[2] == "") != confirms {
			t.Errorf("confirmed %v: asked to quiesce %v, dismissed %q", confirms, tr.called, tr.dismissed[2])
		}
	}
}

// A candidate that has lost a node of the world is dismissed after the node has answered the seed, and not before: the node may have ended.
func TestLosesADeadNode(t *testing.T) {
	tr := newPendingTest(t, 2)
	tr.admit(2, "")
	tr.linked(2, 0, 1)
	tr.arbiter.Lost(tr.now, node(2).ID, node(0).ID, "nothing listens")
	tr.away = true
	if tr.pass(20 * cutPatience); len(tr.dismissed) > 0 {
		t.Fatalf("dismissed: %v", tr.dismissed)
	}
	tr.away = false
	if tr.pass(cutPatience); !strings.Contains(tr.dismissed[2], "cannot reach rank 0") {
		t.Errorf("dismissed: %q, want that it cannot reach rank 0, which lives", tr.dismissed[2])
	}
}

// Neither of two candidates that have lost each other is dismissed, and each enters.
func TestCandidatesLoseEachOther(t *testing.T) {
	tr := newPendingTest(t, 2)
	tr.admit(2, "a")
	tr.linked(2, 0, 1)
	tr.admit(3, "b")
	tr.arbiter.Lost(tr.now, node(2).ID, node(3).ID, "a lie")
	tr.arbiter.Lost(tr.now, node(3).ID, node(2).ID, "another")
	tr.linked(3, 0, 1)
	tr.pass(time.Minute)
	if len(tr.dismissed) > 0 || !tr.called {
		t.Errorf("dismissed: %v, called: %v", tr.dismissed, tr.called)
	}
}

// A candidate that fails again and again waits longer each time, also with another key
// from the same origin. Candidates of other origins do not wait.
func TestHoldoff(t *testing.T) {
	tr := newPendingTest(t, 1)
	var gaps []time.Duration
	for i := 1; i < 12; i++ {
		tr.admit(i, "liar")
		began := tr.now
		for tr.invited[i] == 0 {
			tr.pass(100 * time.Millisecond)
		}
		gaps = append(gaps, tr.now.Sub(began))
		tr.linked(i)
		tr.pass(confirmTimeout)
		if tr.dismissed[i] == "" {
			t.Fatalf("node %d is not dismissed", i)
		}
	}
	for i := 2; i < len(gaps); i++ {
		if want := min(invitePause<<(i-2), holdoffMax); gaps[i] < want || gaps[i] > want+time.Second {
			t.Errorf("attempt %d is held off for %v, want %v", i+1, gaps[i], want)
		}
	}
	if gaps[0] > 0 || gaps[1] > 0 {
		t.Errorf("the first attempts of one origin are held off for %v and %v", gaps[0], gaps[1])
	}
	tr.admit(20, "liar")
	tr.admit(21, "elsewhere")
	if tr.invited[20] != 0 || tr.invited[21] == 0 {
		t.Errorf("invited: %v, want the one of another origin", tr.invited)
	}
}

// A holdoff remembers a bounded number of failures for a bounded time.
func TestHoldoffIsBounded(t *testing.T) {
	h := newHoldoff()
	for i := range 3 * holdoffEntries {
		h.fail(start.Add(time.Duration(i)*time.Millisecond), node(i).ID, fmt.Sprint(i))
	}
	if len(h.entries) != holdoffEntries {
		t.Errorf("%d entries, want %d", len(h.entries), holdoffEntries)
	}
	last := node(3*holdoffEntries - 1).ID
	if h.until(start, last, "").IsZero() {
		t.Error("the last failure is forgotten")
	}
	if late := start.Add(holdoffKeep + time.Minute); !h.until(late, last, "").IsZero() {
		t.Error("a failure still counts much later")
	}
	h = newHoldoff()
	h.fail(start, last, "x")
	h.fail(start, node(1).ID, "x")
	h.fail(start, node(2).ID, "x")
	if !h.isSuspect(start, "x") {
		t.Error("three failures do not make an origin suspect")
	}
	h.succeed(last, "x")
	if h.isSuspect(start, "x") || !h.until(start, last, "").IsZero() {
		t.Error("a node that has entered is held off")
	}
}

// Candidates of one origin cannot keep others from waiting.
func TestFullOfOneOrigin(t *testing.T) {
	tr := newPendingTest(t, 1)
	for i := range waitingMax {
		tr.index[node(1+i).ID] = 1 + i
		if err := tr.pending.Admit(node(1+i), AnyRank, false, "liar"); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.pending.Admit(node(1+waitingMax), AnyRank, false, "liar"); err == nil {
		t.Error("one more of the same origin is admitted")
	}
	tr.admit(2+waitingMax, "elsewhere")
	if n := tr.pending.Waiting(); n != waitingMax {
		t.Errorf("%d wait, want %d", n, waitingMax)
	}
	if why := tr.dismissed[waitingMax]; !strings.Contains(why, "from the address of this one") {
		t.Errorf("dismissed: %v, want the latest one", tr.dismissed)
	}
}

// Nodes of one origin that enter and leave are not held off, in any number.
func TestLeaversAreNotHeldOff(t *testing.T) {
	l := NewPendingJoins(Policy{World: 2, Elastic: true}, 0)
	var s State
	v, err := s.Apply(Entry{Kind: Form, Nodes: nodes(2)})
	if err != nil {
		t.Fatal(err)
	}
	c := NewArbiter(v, l)
	next := func(leaver NodeID) {
		t.Helper()
		for _, n := range v.Nodes {
			c.Quiesced(start, n.ID, v.Epoch, n.ID == leaver, time.Minute)
		}
		r, ok := c.Tick(start)
		if v, err = s.ApplyAll(r.Entries); !ok || err != nil {
			t.Fatalf("got decision %+v (%v), want a view", r, err)
		}
		c.Adopt(v)
	}
	for i := 2; i < 10; i++ {
		if err := l.Admit(node(i), AnyRank, false, "address"); err != nil {
			t.Fatal(err)
		}
		r, ok := c.Tick(start)
		if !ok || r.Invitation == nil {
			t.Fatalf("node %d: got decision %+v, want an invitation at once", i, r)
		}
		c.Linked(node(i).ID, r.Invitation.Number)
		confirmAll(c, 2, i)
		c.Tick(start) // asks all nodes to quiesce
		next(NodeID{})
		next(node(i).ID)
	}
}
