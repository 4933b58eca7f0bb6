package membership

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
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
	links  topology.Topology
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

func newViewWorld(t testing.TB, n int) *viewWorld { return newViewWorldIn(t, topology.Topology{}, n) }

func newViewWorldIn(t testing.TB, links topology.Topology, n int) *viewWorld {
	w := &viewWorld{TB: t, links: links, now: time.Unix(1000, 0), nodes: make(map[NodeID]*viewNode)}
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
	w.nodes[id] = &viewNode{ViewForwarder: NewViewForwarder(id, w.links, verify)}
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
	w.spread, roots = NewViewSpread(w.now, w.links, before, &d)
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
	tree := newViewTree(w.links, v.Size(), []uint32{gone}, v.Epoch+1)
	for _, r := range tree.order {
		if tree.height[r] > 0 && (tree.parent[r] == fromSeed) == root {
			return int(r), tree.subtrees([]uint32{uint32(r)})[1:]
		}
	}
	w.Fatal("no inner node")
	return 0, nil
}
