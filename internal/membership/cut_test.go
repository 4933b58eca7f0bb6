package membership

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A cutTest is an Arbiter of nodes that answer at once.
type cutTest struct {
	*testing.T
	arbiter *Arbiter
	state   State
	now     time.Time
	views   int // adopted since the first
}

func newCutTest(t *testing.T, n int) *cutTest {
	tr := &cutTest{T: t, now: start}
	v, err := tr.state.Apply(Entry{Kind: Form, Nodes: nodes(n)})
	if err != nil {
		t.Fatal(err)
	}
	tr.arbiter = NewArbiter(v, NewPendingJoins(Policy{World: n}, 0))
	return tr
}

// lose reports a loss, and both nodes answer.
func (tr *cutTest) lose(by, to int) {
	tr.tick()
	tr.arbiter.Lost(tr.now, node(by).ID, node(to).ID, "no answer")
	for _, i := range []int{by, to} {
		tr.arbiter.Heard(tr.now, node(i).ID)
	}
}

// tick adopts the views that are due.
func (tr *cutTest) tick() (gone []NodeID) {
	tr.Helper()
	for {
		r, ok := tr.arbiter.Tick(tr.now)
		if !ok {
			return gone
		}
		_, goes := sum(r)
		gone = append(gone, goes...)
		v, err := tr.state.ApplyAll(r.Entries)
		if err != nil {
			tr.Fatal(err)
		}
		tr.arbiter.Adopt(v)
		tr.views++
	}
}

// settle advances the time until nothing is due.
func (tr *cutTest) settle() (gone []NodeID) {
	tr.Helper()
	for {
		due, ok := tr.arbiter.Deadline()
		if !ok {
			return gone
		}
		if due.After(tr.now) {
			tr.now = due
		}
		gone = append(gone, tr.tick()...)
	}
}

// Six nodes do not receive from their predecessors, and report that within one heartbeat
// interval in any order. Three stay.
func TestOneWayRing(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 6))
		tr := newCutTest(t, 6)
		type report struct {
			at     time.Duration
			by, to int
		}
		var reports []report
		for i := range 6 {
			at := time.Duration(rng.IntN(980)) * time.Millisecond
			next := (i + 1) % 6
			reports = append(reports, report{at, next, i})
			if rng.IntN(2) == 0 { // The other end reports that the link was closed.
				reports = append(reports, report{at + time.Duration(rng.IntN(20))*time.Millisecond, i, next})
			}
		}
		slices.SortFunc(reports, func(a, b report) int { return int(a.at - b.at) })
		for _, r := range reports {
			for due, ok := tr.arbiter.Deadline(); ok && due.Before(start.Add(r.at)); due, ok = tr.arbiter.Deadline() {
				tr.now = due
				tr.tick()
			}
			tr.now = start.Add(r.at)
			tr.lose(r.by, r.to)
		}
		tr.settle()
		if v := tr.state.View(); v.Size() != 3 || tr.views > 1 {
			t.Fatalf("seed %d: %d nodes stay after %d views, want 3 after 1", seed, v.Size(), tr.views)
		}
	}
}

// The leading seed shares the host of one of the six nodes, so neither neighbor of that node
// can exchange packets with the seed. The neighbors are removed, and three of six nodes stay.
func TestOneWayRingAroundTheSeed(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 7))
		tr := newCutTest(t, 6)
		for _, i := range rng.Perm(6) {
			next := (i + 1) % 6
			tr.now = tr.now.Add(time.Duration(rng.IntN(150)) * time.Millisecond)
			tr.tick()
			tr.arbiter.Lost(tr.now, node(next).ID, node(i).ID, "it is silent")
			for _, id := range []int{i, next} {
				if id != 1 && id != 5 { // The leader is beside node 0.
					tr.arbiter.Heard(tr.now, node(id).ID)
				}
			}
		}
		tr.settle()
		var left []NodeID
		for _, n := range tr.state.View().Nodes {
			left = append(left, n.ID)
		}
		if want := []NodeID{node(0).ID, node(2).ID, node(4).ID}; !slices.Equal(left, want) {
			t.Fatalf("seed %d: %v stay, want %v", seed, left, want)
		}
	}
}

// A node accuses one node after the other. The first is removed without a confirmation,
// so the second time the accuser is removed, however many views have passed.
func TestAccuserIsRemoved(t *testing.T) {
	tr := newCutTest(t, 5)
	tr.lose(3, 0)
	if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(0).ID}) {
		t.Fatalf("first %v are removed, want the accused", gone)
	}
	tr.now = tr.now.Add(time.Hour)
	tr.arbiter.Gone(tr.now, node(4).ID, true, "it left") // This makes another view.
	tr.settle()
	tr.lose(3, 1)
	if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(3).ID}) {
		t.Fatalf("then %v are removed, want the accuser", gone)
	}
}

// A node that breaks one link after another, so that both ends report the loss, has at
// most one other node removed.
func TestBothAccuse(t *testing.T) {
	tr := newCutTest(t, 5)
	for i, want := range []int{4, 0} {
		victim := 4 - i
		tr.lose(0, victim)
		tr.lose(victim, 0)
		if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(want).ID}) {
			t.Fatalf("loss %d: %v are removed, want node %d", i, gone, want)
		}
		tr.now = tr.now.Add(time.Minute)
	}
}

// An accuser gets no strike if a third node has lost the accused as well, or if the
// accused does not answer.
func TestConfirmedAccusations(t *testing.T) {
	for name, first := range map[string]func(tr *cutTest){
		"a third node": func(tr *cutTest) {
			tr.lose(1, 4)
			tr.lose(2, 4)
		},
		"silence": func(tr *cutTest) {
			tr.arbiter.Lost(tr.now, node(1).ID, node(4).ID, "no answer")
			tr.arbiter.Heard(tr.now, node(1).ID)
		},
		"it is gone": func(tr *cutTest) {
			tr.arbiter.Lost(tr.now, node(1).ID, node(4).ID, "no answer")
			tr.arbiter.Gone(tr.now, node(4).ID, false, "it is gone")
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newCutTest(t, 5)
			first(tr)
			if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(4).ID}) {
				t.Fatalf("first %v are removed, want node 4", gone)
			}
			tr.lose(1, 0)
			if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(0).ID}) {
				t.Errorf("then %v are removed, want the accused, node 0", gone)
			}
		})
	}
}

// A node that accuses others before the first is removed is removed itself.
func TestQuickAccusations(t *testing.T) {
	tr := newCutTest(t, 5)
	tr.lose(3, 0)
	tr.now = tr.now.Add(cutPatience - time.Millisecond)
	tr.lose(3, 1)
	if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(3).ID}) {
		t.Errorf("%v are removed, want the accuser", gone)
	}
}

// Each of 300 nodes has lost a third of the others. The decision takes less than a
// second of CPU; the limit has a margin for a loaded machine.
func TestManyLosses(t *testing.T) {
	const n = 300
	rng := rand.New(rand.NewPCG(9, 9))
	c := NewArbiter(View{Epoch: 1, Nodes: nodes(n)}, NewPendingJoins(Policy{World: n}, 0))
	for a := range n {
		for b := range n {
			if a != b && rng.IntN(3) == 0 {
				c.Lost(start, node(a).ID, node(b).ID, "no answer")
			}
		}
		c.Heard(start, node(a).ID)
	}
	began := time.Now()
	r, ok := c.Tick(start.Add(cutPatience))
	took := time.Since(began)
	_, goes := sum(r)
	if !ok || n-len(goes) < 5 || took > time.Minute {
		t.Errorf("%d of %d stay after %v", n-len(goes), n, took)
	}
	t.Logf("%d of %d stay, %v", n-len(goes), n, took)
}

// A node that had links to newcomers has one of them removed, but not another. A node
// that never had the links gets no strike.
func TestNewcomersAreAccused(t *testing.T) {
	for linked, want := range map[bool][]int{true: {4, 1}, false: {4, 3}} {
		tr := newCutTest(t, 5)
		for _, want := range want {
			n := newcomer{at: tr.now}
			if linked {
				n.links = map[NodeID]struct{}{node(1).ID: {}}
			}
			tr.arbiter.newcomers = map[NodeID]newcomer{node(4 - tr.views).ID: n}
			tr.lose(1, 4-tr.views)
			if gone := tr.settle(); !slices.Equal(gone, []NodeID{node(want).ID}) {
				t.Fatalf("linked before %v: %v are removed, want node %d", linked, gone, want)
			}
		}
	}
}
