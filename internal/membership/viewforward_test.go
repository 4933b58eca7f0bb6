package membership

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
)

// TestViewsReachAll: random joins, departures and deaths; the seed sometimes learns of a death only
// after the next view. In the end every living node has the newest view. A seed sends few messages.
func TestViewsReachAll(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(60)
		w := newViewWorldIn(t, mustParse(t, viewTopologies[seed%3]), n)
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

// TestSparseViews: in a sparse topology a difference travels over links of neighbors only. The seed sends it to 8
// nodes, and all that stay get it once, after a join, a leave and a death. So n nodes forward it over n-8 links, a forest with a
// tree below each node that gets it from the seed, and never over more than n-1.
func TestSparseViews(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube"} {
		for _, n := range []int{64, 256} {
			w := newViewWorldIn(t, mustParse(t, name), n)
			for _, entry := range []func() Entry{
				func() Entry { return Entry{Kind: Join, Nodes: []Node{node(n)}} },
				func() Entry { w.kill(n / 2); return w.gone(Leave, n/2) },
				func() Entry { w.kill(n / 3); return w.gone(Fail, n/3) },
				func() Entry { w.kill(0); return w.gone(Leave, 0) },
				func() Entry { return Entry{Kind: Join, Nodes: []Node{node(n + 1), node(n + 2)}} },
				func() Entry { w.kill(n - 4); return w.gone(Fail, n-4) },
			} {
				w.sparseView(entry())
			}
		}
	}
}

// sparseView distributes the view after an entry, and counts the messages and the links that they take.
func (w *viewWorld) sparseView(e Entry) {
	w.Helper()
	before, graph := w.state.View(), WatchGraph{Topology: w.links}
	links, copies := make(map[[2]int]bool), make(map[int]int)
	w.drop = func(from, to NodeID, body any) bool {
		a, in := before.Rank(from)
		b, there := before.Rank(to)
		if in && there && !graph.Connects(before, a, b) {
			w.Errorf("%v: a %T goes from rank %d of %d to rank %d, which is no neighbor", w.links, body, a, before.Size(), b)
		}
		if _, ok := body.(Difference); ok {
			copies[b]++
			if in {
				links[[2]int{min(a, b), max(a, b)}] = true
			}
		}
		return false
	}
	w.sent, w.received = 0, 0
	w.change(e)
	w.run(100 * time.Millisecond) // shorter than the seed waits
	w.check()
	stay := before.Size() - len(e.IDs)
	if sent := viewRoots + len(e.Nodes); w.sent != sent || w.received != viewRoots {
		w.Errorf("%v, %v of %d: the seed sends %d messages and gets %d, want %d and %d", w.links, e.Kind, before.Size(), w.sent, w.received, sent, viewRoots)
	}
	if len(links) != stay-viewRoots || len(copies) != stay {
		w.Errorf("%v, %v of %d: %d nodes get the difference, over %d links between nodes; want %d and %d",
			w.links, e.Kind, before.Size(), len(copies), len(links), stay, stay-viewRoots)
	}
	for rank, n := range copies {
		if n != 1 {
			w.Errorf("%v, %v of %d: rank %d gets %d copies", w.links, e.Kind, before.Size(), rank, n)
		}
	}
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

// TestParentIsAsked: a node has missed a view, and its parent and the seed take it for confirmed. When a ping tells it of the view, it
// asks its parent. The parent has it, and the seed sends no whole view.
func TestParentIsAsked(t *testing.T) {
	w := newViewWorld(t, 100)
	w.kill(50)
	w.change(w.gone(Fail, 50))
	w.run(time.Second)
	v := w.state.View()
	late := slices.IndexFunc(v.Nodes, func(n Node) bool { return w.nodes[n.ID].round.parent != (NodeID{}) })
	id := v.Nodes[late].ID
	parent, _ := v.Rank(w.nodes[id].round.parent)
	victim := slices.IndexFunc(v.Nodes, func(n Node) bool { return n.ID != id && n.ID != v.Nodes[parent].ID })
	w.drop = func(_, to NodeID, body any) bool {
		_, isDifference := body.(Difference)
		return isDifference && to == id
	}
	w.kill(victim)
	w.change(w.gone(Fail, victim))
	w.run(time.Second)
	if got := w.nodes[id].view.Epoch; got != v.Epoch {
		t.Fatalf("the node has view %d, want %d", got, v.Epoch)
	}
	var asked []NodeID
	w.drop = func(from, to NodeID, body any) bool {
		if _, asks := body.(Behind); asks && from == id {
			asked = append(asked, to)
		}
		return false
	}
	w.ping()
	w.run(2 * time.Second)
	w.check()
	if want := v.Nodes[parent].ID; !slices.Equal(asked, []NodeID{want}) || w.whole > 0 {
		t.Errorf("it asks %v, want its parent %v; the seed sends %d whole views, want none", asked, want, w.whole)
	}
}

// TestTwoMissedViews: a node that misses two views asks the sender of the third, and gets both from it.
func TestTwoMissedViews(t *testing.T) {
	w := newViewWorld(t, 30)
	v := w.state.View()
	tree := newViewTree(topology.Topology{}, 28, []uint32{2}, 4) // of the third difference
	rank := slices.IndexFunc(tree.parent, func(parent int32) bool { return parent > 2 })
	cut := v.Nodes[rank+2].ID // not a root, which would ask the seed; two nodes before it are gone by then
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
