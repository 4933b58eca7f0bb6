package membership

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// sign and verify are a signature without a key, for simulations: a forger cannot make it, since no
// test lets it call sign.
func sign(epoch uint64, h Hash) []byte {
	return append([]byte(fmt.Sprintf("signed %d ", epoch)), h[:]...)
}

func verify(epoch uint64, h Hash, signature []byte) error {
	if !bytes.Equal(signature, sign(epoch, h)) {
		return errors.New("bad signature")
	}
	return nil
}

// A viewWorld has a seed and nodes that exchange messages about views, in virtual time. Each message
// takes a millisecond.
type viewWorld struct {
	testing.TB
	now    time.Time
	state  State
	spread *ViewSpread
	diff   Difference
	nodes  map[NodeID]*viewNode
	queue  []viewDelivery // in the order of time

	sent, received int // messages of the seed to nodes, and of nodes to the seed
	drop           func(from, to NodeID, body any) bool
	whole          int // whole views that the seed has sent
}

type viewNode struct {
	*ViewForwarder
	dead   bool
	mute   bool // does not forward, and confirms
	forged []string
}

type viewDelivery struct {
	at       time.Time
	from, to NodeID // zero: the seed
	body     any    // also a View, from the seed
	lost     bool   // to learns that it cannot reach from
}

func newViewWorld(t testing.TB, n int) *viewWorld {
	w := &viewWorld{TB: t, now: time.Unix(1000, 0), nodes: make(map[NodeID]*viewNode)}
	e := Entry{Kind: Form}
	for i := range n {
		e.Nodes = append(e.Nodes, node(i))
	}
	v, err := w.state.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Nodes {
		w.add(n.ID).Set(v)
	}
	return w
}

func (w *viewWorld) add(id NodeID) *viewNode {
	w.nodes[id] = &viewNode{ViewForwarder: NewViewForwarder(id, verify)}
	return w.nodes[id]
}

func (w *viewWorld) post(from, to NodeID, body any) {
	switch {
	case from == (NodeID{}):
		w.sent++
	case to == (NodeID{}):
		w.received++
	}
	if w.drop != nil && w.drop(from, to, body) {
		return
	}
	if n := w.nodes[to]; n != nil && n.dead {
		if from != (NodeID{}) {
			w.queue = append(w.queue, viewDelivery{at: w.now.Add(time.Millisecond), from: to, to: from, lost: true})
		}
		return
	}
	w.queue = append(w.queue, viewDelivery{at: w.now.Add(time.Millisecond), from: from, to: to, body: body})
}

// change distributes the next view.
func (w *viewWorld) change(entries ...Entry) View {
	before := w.state.View()
	after, err := w.state.ApplyAll(entries)
	if err != nil {
		w.Fatal(err)
	}
	d, ok := Diff(before, after)
	if !ok {
		w.Fatalf("no difference between view %d and view %d", before.Epoch, after.Epoch)
	}
	d.Signature = sign(d.Epoch, d.Hash)
	var roots []NodeID
	w.diff = d
	w.spread, roots = NewViewSpread(w.now, before, &d)
	w.toAll(roots)
	for _, n := range after.Nodes {
		if !before.has(n.ID) {
			w.add(n.ID)
			w.post(NodeID{}, n.ID, after)
		}
	}
	for _, id := range roots {
		if w.nodes[id].dead {
			w.toAll(w.spread.Unreachable(id))
		}
	}
	return after
}

func (w *viewWorld) toAll(ids []NodeID) {
	for _, id := range ids {
		w.post(NodeID{}, id, w.diff)
	}
}

// ping sends the newest epoch to all nodes of the view.
func (w *viewWorld) ping() {
	v := w.state.View()
	for _, n := range v.Nodes {
		if f := w.nodes[n.ID]; !f.dead {
			f.Newer(w.now, v.Epoch)
			w.flush(n.ID)
		}
	}
}

// run runs until nothing is left to do, or for a time.
func (w *viewWorld) run(limit time.Duration) {
	end := w.now.Add(limit)
	for {
		at, tick := end, false
		if len(w.queue) > 0 && w.queue[0].at.Before(at) {
			at = w.queue[0].at
		}
		due := func(deadline time.Time, ok bool) bool { return ok && !deadline.After(at) }
		if w.spread != nil && due(w.spread.Deadline()) {
			at, tick = later(w.now, first(w.spread.Deadline())), true
		}
		for _, f := range w.nodes {
			if !f.dead && due(f.Deadline()) {
				at, tick = later(w.now, first(f.Deadline())), true
			}
		}
		switch {
		case tick:
			w.now = at
			w.tick()
		case len(w.queue) > 0 && !w.queue[0].at.After(end):
			m := w.queue[0]
			w.queue = w.queue[1:]
			w.now = later(w.now, m.at)
			w.deliver(m)
		default:
			return
		}
	}
}

func first(at time.Time, _ bool) time.Time { return at }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *viewWorld) tick() {
	if w.spread != nil {
		w.toAll(w.spread.Tick(w.now))
	}
	for _, id := range w.ids() {
		if f := w.nodes[id]; !f.dead {
			f.Tick(w.now)
			w.flush(id)
		}
	}
}

// ids returns the nodes in a fixed order, so that a run can be repeated.
func (w *viewWorld) ids() (ids []NodeID) {
	for id := range w.nodes {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b NodeID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

func (w *viewWorld) deliver(m viewDelivery) {
	if m.to == (NodeID{}) {
		switch body := m.body.(type) {
		case Confirmation:
			w.toAll(w.spread.Confirmation(m.from, body))
		case Behind:
			if v := w.state.View(); v.has(m.from) && body.Epoch < v.Epoch {
				w.whole++
				w.post(NodeID{}, m.from, v)
			}
		}
		return
	}
	f := w.nodes[m.to]
	if f.dead {
		return
	}
	switch body := m.body.(type) {
	case nil:
		f.Unreachable(m.from)
	case View:
		if body.Epoch > f.view.Epoch {
			f.Set(body)
		}
	case Difference:
		if _, _, err := f.Difference(w.now, m.from, body); err != nil {
			f.forged = append(f.forged, fmt.Sprintf("%v from %v", err, m.from))
		}
	case Confirmation:
		f.Confirmation(m.from, body)
	case Behind:
		f.Behind(m.from, body)
	}
	w.flush(m.to)
}

func (w *viewWorld) flush(id NodeID) {
	f := w.nodes[id]
	for _, m := range f.Messages() {
		if _, forwards := m.Body.(Difference); forwards && f.mute {
			f.Confirmation(m.To, Confirmation{Epoch: f.round.epoch})
			for _, m := range f.Messages() {
				w.post(id, m.To, m.Body)
			}
			continue
		}
		w.post(id, m.To, m.Body)
	}
}

// check requires that all living nodes of the newest view have it.
func (w *viewWorld) check() {
	w.Helper()
	v := w.state.View()
	want := v.Hash()
	for rank, n := range v.Nodes {
		if f := w.nodes[n.ID]; !f.dead && f.view.Hash() != want {
			w.Errorf("rank %d of %d has view %d, want view %d", rank, v.Size(), f.view.Epoch, v.Epoch)
		}
	}
}

// gone returns the entry that removes ranks of the newest view.
func (w *viewWorld) gone(kind Kind, ranks ...int) (e Entry) {
	e.Kind = kind
	v := w.state.View()
	for _, rank := range ranks {
		e.IDs = append(e.IDs, v.Nodes[rank].ID)
	}
	return e
}

// kill makes the nodes of ranks die.
func (w *viewWorld) kill(ranks ...int) {
	v := w.state.View()
	for _, rank := range ranks {
		w.nodes[v.Nodes[rank].ID].dead = true
	}
}

// TestViewsReachAll: random joins, departures and deaths; the seed sometimes learns of a death only
// after the next view. In the end every living node has the newest view. A seed sends few messages.
func TestViewsReachAll(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(60)
		w := newViewWorld(t, n)
		joined := n
		for range 1 + rng.IntN(8) {
			v := w.state.View()
			var entries []Entry
			var dead []int
			for rank, m := range v.Nodes {
				if w.nodes[m.ID].dead && rng.IntN(3) > 0 {
					dead = append(dead, rank)
				}
			}
			if len(dead) == 0 && v.Size() > 2 && rng.IntN(2) == 0 {
				dead = []int{rng.IntN(v.Size())}
			}
			if len(dead) > 0 && len(dead) < v.Size() {
				w.kill(dead...)
				entries = append(entries, w.gone(Fail, dead...))
			}
			if rng.IntN(2) == 0 || len(entries) == 0 {
				e := Entry{Kind: Join}
				for range 1 + rng.IntN(3) {
					e.Nodes = append(e.Nodes, node(joined))
					joined++
				}
				entries = append(entries, e)
			}
			w.change(entries...)
			if v := w.state.View(); rng.IntN(3) == 0 && v.Size() > 2 {
				w.kill(rng.IntN(v.Size())) // The seed does not know.
			}
			w.run(time.Duration(rng.IntN(30)) * time.Millisecond)
		}
		w.run(20 * time.Second)
		w.ping()
		w.run(20 * time.Second)
		w.check()
		for id, f := range w.nodes {
			if len(f.forged) > 0 {
				t.Errorf("node %v has refused views: %v", id, f.forged)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestViewTraffic: the seed sends a difference to 8 nodes and gets their confirmations, in a world of
// any size, and the difference reaches all nodes in a number of hops that grows slowly.
func TestViewTraffic(t *testing.T) {
	for _, test := range []struct{ n, hops int }{{2, 1}, {9, 1}, {16, 2}, {64, 3}, {256, 4}, {1024, 6}} {
		w := newViewWorld(t, test.n)
		w.kill(test.n / 3)
		began := w.now
		w.change(w.gone(Fail, test.n/3))
		for !t.Failed() && w.newest() < test.n-1 {
			w.run(time.Millisecond)
			if hops := int(w.now.Sub(began) / time.Millisecond); hops > 100 {
				t.Errorf("%d nodes: after %d hops %d have the view", test.n, hops, w.newest())
			}
		}
		if hops := int(w.now.Sub(began) / time.Millisecond); hops > test.hops {
			t.Errorf("%d nodes: the view takes %d hops, want at most %d", test.n, hops, test.hops)
		}
		w.run(time.Second)
		w.check()
		if want := min(viewRoots, test.n-1); w.sent != want || w.received != want {
			t.Errorf("%d nodes: the seed sends %d messages and gets %d, want %d", test.n, w.sent, w.received, want)
		}
	}
}

// newest returns the number of living nodes with the newest view.
func (w *viewWorld) newest() (n int) {
	v := w.state.View()
	for _, m := range v.Nodes {
		if f := w.nodes[m.ID]; !f.dead && f.view.Epoch == v.Epoch {
			n++
		}
	}
	return n
}

// inner returns a rank with a subtree in the tree of a departure of the rank gone: a root or not.
func (w *viewWorld) inner(gone uint32, root bool) (rank int, subtree []int) {
	v := w.state.View()
	tree := newViewTree(v.Size(), []uint32{gone}, v.Epoch+1)
	for _, r := range tree.order {
		if tree.height[r] > 0 && (tree.parent[r] == fromSeed) == root {
			return int(r), tree.subtrees([]uint32{uint32(r)})[1:]
		}
	}
	w.Fatal("no inner node")
	return 0, nil
}

// TestInnerNodeDies: a node of the tree is dead when the view reaches it. Its subtree gets the view
// from the seed, and from nobody later than the time that parents wait.
func TestInnerNodeDies(t *testing.T) {
	for _, root := range []bool{true, false} {
		w := newViewWorld(t, 100)
		dead, subtree := w.inner(50, root)
		w.kill(50, dead)
		w.change(w.gone(Fail, 50))
		w.run(time.Second)
		w.check()
		if want := min(viewRoots, 98) + len(subtree); w.sent < want || w.sent > want+1 {
			t.Errorf("root %v: the seed sends %d messages, want %d and %d for the subtree", root, w.sent, viewRoots, len(subtree))
		}
		if w.whole > 0 {
			t.Errorf("root %v: the seed sends %d whole views", root, w.whole)
		}
	}
}

// TestSilentInnerNode: a node of the tree neither forwards nor confirms, and is not known to be dead.
func TestSilentInnerNode(t *testing.T) {
	for _, root := range []bool{true, false} {
		w := newViewWorld(t, 100)
		silent, subtree := w.inner(50, root)
		id := w.state.View().Nodes[silent].ID
		w.drop = func(from, _ NodeID, _ any) bool { return from == id }
		w.kill(50)
		w.change(w.gone(Fail, 50))
		w.run(time.Second)
		w.check()
		if w.sent < viewRoots+len(subtree) || w.sent > viewRoots+len(subtree)+1 {
			t.Errorf("root %v: the seed sends %d messages, want %d and %d for the subtree", root, w.sent, viewRoots, len(subtree))
		}
	}
}

// TestFalseConfirmation: a node confirms for its subtree without forwarding the view. The nodes learn
// of the view by a ping of the seed, ask their parents in vain and then the seed.
func TestFalseConfirmation(t *testing.T) {
	w := newViewWorld(t, 100)
	liar, subtree := w.inner(50, true)
	w.nodes[w.state.View().Nodes[liar].ID].mute = true
	w.kill(50)
	w.change(w.gone(Fail, 50))
	w.run(time.Second)
	if missing := 99 - w.newest(); missing != len(subtree) {
		t.Fatalf("%d nodes lack the view, want the subtree of %d", missing, len(subtree))
	}
	w.ping()
	w.run(2 * time.Second)
	w.check()
	if w.whole != len(subtree) {
		t.Errorf("the seed sends %d whole views, want %d", w.whole, len(subtree))
	}
}

// TestTwoMissedViews: a node that misses two views asks the sender of the third, and gets both from it.
func TestTwoMissedViews(t *testing.T) {
	w := newViewWorld(t, 30)
	v := w.state.View()
	cut := v.Nodes[20].ID
	w.drop = func(_, to NodeID, body any) bool {
		_, difference := body.(Difference)
		return to == cut && difference && w.state.View().Epoch < 4
	}
	for rank := range 3 {
		w.kill(rank)
		w.change(w.gone(Fail, rank))
		w.run(time.Second)
		want := v.Epoch
		if rank == 2 {
			want = w.state.View().Epoch
		}
		if got := w.nodes[cut].view.Epoch; got != want {
			t.Errorf("after %d views it has view %d, want %d", rank+1, got, want)
		}
	}
	w.check()
	if w.whole > 0 {
		t.Errorf("the seed sends %d whole views", w.whole)
	}
	sender := 0
	for _, id := range w.ids() {
		if f := w.nodes[id]; id != cut && len(f.recent) == 3 {
			sender++
		}
	}
	if sender != 26 {
		t.Errorf("%d nodes can answer, want all 26 others", sender)
	}
}

// TestForgedView: a node refuses a view that the seed has not signed, and a difference that leads to
// another view than the signed one. It forwards neither.
func TestForgedView(t *testing.T) {
	w := newViewWorld(t, 30)
	v := w.state.View()
	forger, victim := v.Nodes[4].ID, v.Nodes[5].ID
	d, _ := Diff(v, v.without(func(id NodeID) bool { return id == v.Nodes[9].ID }))
	d.Epoch, d.Signature = v.Epoch+1, sign(d.Epoch, d.Hash) // over another epoch
	forgeries := []Difference{d}
	next := v.without(func(id NodeID) bool { return id == v.Nodes[9].ID })
	next.Epoch++
	d, _ = Diff(v, next)
	for _, signature := range [][]byte{nil, sign(d.Epoch+1, d.Hash), sign(d.Epoch, v.Hash())} {
		unsigned := d
		unsigned.Signature = signature
		forgeries = append(forgeries, unsigned)
	}
	d.Signature = sign(d.Epoch, d.Hash)
	for _, gone := range [][]uint32{{8}, {9, 10}, {30}, {9, 9}, nil} {
		changed := d
		changed.Gone = gone
		forgeries = append(forgeries, changed)
	}
	for i, d := range forgeries {
		w.post(forger, victim, d)
		w.run(time.Second)
		if f := w.nodes[victim]; len(f.forged) != i+1 || f.view.Epoch != v.Epoch {
			t.Errorf("forgery %d: it has view %d, and has refused %v", i, f.view.Epoch, f.forged)
		}
	}
	w.post(forger, victim, d)
	w.run(time.Millisecond)
	if w.nodes[victim].view.Hash() != next.Hash() {
		t.Error("a view that the seed has signed is refused from a node")
	}
}

// TestDiff: every difference leads to the same view, and there is none if the order changes.
func TestDiff(t *testing.T) {
	var s State
	a, _ := s.Apply(Entry{Kind: Form, Nodes: []Node{node(0), node(1), node(2)}})
	b, _ := s.ApplyAll([]Entry{{Kind: Fail, IDs: []NodeID{a.Nodes[1].ID}}, {Kind: Join, Nodes: []Node{node(3)}}})
	d, ok := Diff(a, b)
	if !ok || d.Base != a.Epoch || d.Epoch != b.Epoch || !slices.Equal(d.Gone, []uint32{1}) || len(d.Joined) != 1 {
		t.Errorf("difference %+v (%v)", d, ok)
	}
	if got, err := d.Apply(a); err != nil || got.Hash() != b.Hash() {
		t.Errorf("it leads to %+v (%v), want %+v", got, err, b)
	}
	if _, err := d.Apply(b); err == nil {
		t.Error("it fits the view after, too")
	}
	c := View{Epoch: b.Epoch + 1, Nodes: []Node{b.Nodes[1], b.Nodes[0], b.Nodes[2]}}
	if d, ok := Diff(b, c); ok {
		got, err := d.Apply(b)
		if err != nil || got.Hash() != c.Hash() {
			t.Errorf("a view with another order has the difference %+v", d)
		}
	}
}

// TestViewHash: every field of a view changes its hash.
func TestViewHash(t *testing.T) {
	base := View{Epoch: 3, Nodes: []Node{{ID: node(1).ID, Addrs: []string{"a:1", "b:2"}, Host: "h", Name: "n", Endpoints: []Endpoint{{Transport: "tcp", Addr: "c:3"}}}, node(2)}}
	seen := map[Hash]int{base.Hash(): -1}
	for i, change := range []func(v *View){
		func(v *View) { v.Epoch++ },
		func(v *View) { v.Nodes = v.Nodes[:1] },
		func(v *View) { slices.Reverse(v.Nodes) },
		func(v *View) { v.Nodes[0].ID[15]++ },
		func(v *View) { v.Nodes[0].Addrs[0] = "a:2" },
		func(v *View) { v.Nodes[0].Addrs = []string{"a:1b:2"} },
		func(v *View) { v.Nodes[0].Host = "g" },
		func(v *View) { v.Nodes[0].Name = "m" },
		func(v *View) { v.Nodes[0].Host, v.Nodes[0].Name = "hn", "" },
		func(v *View) { v.Nodes[0].Endpoints[0].Transport = "quic" },
		func(v *View) { v.Nodes[0].Endpoints[0].Addr = "" },
		func(v *View) { v.Nodes[0].Endpoints = nil },
	} {
		v := base.clone()
		change(&v)
		if other, same := seen[v.Hash()]; same {
			t.Errorf("change %d has the hash of %d", i, other)
		}
		seen[v.Hash()] = i
	}
}

// TestViewTree: each node that stays is in the tree once, below a root, and its parent is a neighbor
// in the graph of watches.
func TestViewTree(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 1 + rng.IntN(200)
		var gone []uint32
		for rank := range n {
			if rng.IntN(1+rng.IntN(10)) == 0 {
				gone = append(gone, uint32(rank))
			}
		}
		tree := newViewTree(n, gone, rng.Uint64())
		v := View{Nodes: make([]Node, n)}
		roots := 0
		seen := make(map[int32]bool)
		for _, rank := range tree.order {
			switch p := tree.parent[rank]; {
			case p == fromSeed:
				roots++
			case !seen[p]:
				t.Fatalf("seed %d: rank %d comes before its parent %d", seed, rank, p)
			case !slices.Contains(Watched(v, int(rank), 0), int(p)) && !slices.Contains(Watchers(v, int(rank), 0), int(p)):
				t.Fatalf("seed %d: ranks %d and %d do not watch each other", seed, rank, p)
			case tree.height[p] <= tree.height[rank]:
				t.Fatalf("seed %d: rank %d is higher than its parent", seed, rank)
			}
			if seen[rank] || slices.Contains(gone, uint32(rank)) {
				t.Fatalf("seed %d: rank %d is in the tree twice, or gone", seed, rank)
			}
			seen[rank] = true
		}
		if len(seen) != n-len(gone) || len(gone) == 0 && roots != min(viewRoots, n) {
			t.Fatalf("seed %d: %d of %d nodes in the tree, %d roots", seed, len(seen), n-len(gone), roots)
		}
	}
}
