package mesh

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport/sim"
)

// newcomers adds nodes to a world. Each links itself to all nodes before it. It returns a view
// of all nodes.
func (w *world) newcomers(n int) (all membership.View) {
	w.Helper()
	return w.newcomersAfter(n, 0)
}

// newcomersAfter is newcomers, but the other nodes expect each new node only after it has been
// dialing them for the time delay.
func (w *world) newcomersAfter(n int, delay time.Duration) (all membership.View) {
	w.Helper()
	all = membership.View{Epoch: 1, Nodes: slices.Clone(w.view.Nodes)}
	for range n {
		rank := len(all.Nodes)
		id := idOf(rank)
		all.Nodes = append(all.Nodes, membership.Node{ID: id, Addrs: []string{id.String()}, Host: id.String()})
		w.notes = append(w.notes, &notes{failed: make(map[int]int)})
		w.network.Host(id.String())
		w.transports, w.meshes, w.comms = append(w.transports, nil), append(w.meshes, nil), append(w.comms, nil)
		w.listen(rank)
		expect := func() {
			for _, m := range w.meshes[:rank] {
				m.Expect(all.Nodes[rank : rank+1])
			}
		}
		if delay > 0 {
			time.AfterFunc(delay, expect)
		} else {
			expect()
		}
		w.join(membership.View{Epoch: 1, Nodes: slices.Clone(all.Nodes)}, rank)
	}
	return all
}

// join links a newcomer, the last node of all, to the nodes before it.
func (w *world) join(all membership.View, rank int) {
	w.Helper()
	before := w.view
	w.view = all
	cfg := w.config(rank)
	w.view = before
	cfg.World = len(before.Nodes)
	m, err := Form(w.Context(), cfg)
	if err == nil {
		err = m.Formed()
	}
	if err != nil {
		w.Fatalf("newcomer %d: %v", rank, err)
	}
	w.meshes[rank] = m
	time.Sleep(2 * delay) // The other nodes learn that the new one uses their connections.
}

// reduceIn carries out an all-reduce of some nodes in a view, and returns their errors. If one of them takes no part, the others wait for a minute.
func (w *world) reduceIn(id uint64, v membership.View, slots ...int) []error {
	errs := make([]error, len(slots))
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for rank, slot := range slots {
		m := w.meshes[slot]
		w.adopt(m, v)
		links, err := m.links(v)
		if err != nil {
			errs[rank] = err
			continue
		}
		c := m.Engine().NewComm(id, rank, links)
		all.Go(func() { errs[rank] = reduce(ctx, c, rank, len(slots)) })
	}
	all.Wait()
	return errs
}

// TestGrow: two nodes join a world of three while it works, and are in the next view. Then one
// of the first three fails, and the others continue.
func TestGrow(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		time.Sleep(time.Minute)
		all := w.newcomers(2)
		for rank, err := range w.reduce(0, 1, 2) {
			if err != nil {
				t.Errorf("before they join, rank %d: %v", rank, err)
			}
		}
		for rank, err := range w.reduceIn(2, membership.View{Epoch: 2, Nodes: all.Nodes}, 0, 1, 2, 3, 4) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		time.Sleep(time.Hour)
		w.network.PowerOff(w.host(1))
		time.Sleep(timeout + 3*interval)
		rest := membership.View{Epoch: 3, Nodes: slices.Delete(slices.Clone(all.Nodes), 1, 2)}
		for rank, err := range w.reduceIn(3, rest, 0, 2, 3, 4) {
			if err != nil {
				t.Errorf("after the failure, rank %d: %v", rank, err)
			}
		}
		for _, slot := range []int{0, 2, 3, 4} {
			if got := w.notes[slot].all(); !slices.Equal(got, []int{1}) {
				t.Errorf("node %d: failed nodes %v, want 1", slot, got)
			}
		}
	})
}

// TestNewcomerRestarts: a node that is in no view yet dies and joins again. That is no failure.
func TestNewcomerRestarts(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(1)
		w.meshes[3].Abort()
		time.Sleep(time.Minute)
		w.join(all, 3)
		for rank, err := range w.reduceIn(2, all, 0, 1, 2, 3) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.network.Crash(w.host(3))
		time.Sleep(time.Second)
		for slot := range 3 {
			if got := w.notes[slot].all(); !slices.Equal(got, []int{3}) {
				t.Errorf("node %d: failed nodes %v, want 3, once it was in the world", slot, got)
			}
		}
	})
}

// TestLinksAreReleased: nothing refers to the link of a node that has left the world, or that died
// before it joined. Such a reference would also keep the memory that the node shares.
func TestLinksAreReleased(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.newcomers(1)
		m := w.meshes[0]
		early, late := weak.Make(w.linkOf(0, 3)), weak.Make(w.linkOf(0, 2))
		w.meshes[3].Abort()
		w.meshes[3] = nil
		m.loop.perform(func() func() {
			return m.decideOnLocked(event{slot: 2, id: idOf(2), kind: membership.ReportedLost, err: &reportedError{by: 1, text: "it is silent"}})
		})
		time.Sleep(time.Second)
		w.network.Crash(w.host(2))
		time.Sleep(time.Minute)
		w.comms[0].Close()
		w.comms[0] = nil
		w.adopt(m, membership.View{Epoch: 2, Nodes: w.view.Nodes[:2]})
		for range 100 {
			time.Sleep(time.Second)
			runtime.GC()
			if early.Value() == nil && late.Value() == nil {
				return
			}
		}
		t.Errorf("the link to the newcomer is still in memory: %t; the link to the node of the world: %t", early.Value() != nil, late.Value() != nil)
	})
}

// TestNewcomerDialsEarly: the other nodes expect a newcomer only after it has dialed them. It dials
// again until it is linked.
func TestNewcomerDialsEarly(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomersAfter(2, 300*time.Millisecond)
		time.Sleep(time.Minute)
		for rank, err := range w.reduceIn(2, all, 0, 1, 2, 3, 4) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		for slot := range 5 {
			if got := w.notes[slot].all(); len(got) > 0 {
				t.Errorf("node %d: failed nodes %v, want none", slot, got)
			}
		}
	})
}

// TestPendingNodeStaysLinked: a node that is not in the next view stays linked to one that is, and
// is in the view after that.
func TestPendingNodeStaysLinked(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(2)
		without := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(all.Nodes), 3, 4)}
		last := membership.View{Epoch: 3, Nodes: append(slices.Clone(without.Nodes), all.Nodes[3])}
		for rank, err := range w.reduceIn(2, without, 0, 1, 2, 4) {
			if err != nil {
				t.Errorf("without the pending node, rank %d: %v", rank, err)
			}
		}
		time.Sleep(time.Minute)
		for rank, err := range w.reduceIn(3, last, 0, 1, 2, 4, 3) {
			if err != nil {
				t.Errorf("with the pending node, rank %d: %v", rank, err)
			}
		}
	})
}

// TestPendingNodesLoseEachOther: of two joining nodes that lose their link, the one that has dialed
// reports it. That is no failure.
func TestPendingNodesLoseEachOther(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var mu sync.Mutex
		var lost []membership.NodeID
		w.lost = func(id membership.NodeID, _ error) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, id)
		}
		w.form()
		w.newcomers(2)
		w.network.SetLink(w.host(3), w.host(4), sim.Link{Down: true})
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(lost, []membership.NodeID{idOf(3)}) {
			t.Errorf("reported lost: %v, want node 3, once", lost)
		}
		for slot := range 5 {
			if got := w.notes[slot].all(); len(got) > 0 {
				t.Errorf("node %d: failed nodes %v, want none", slot, got)
			}
		}
	})
}

// TestPendingNodeRestarts: a node that is not in the next view closes all its links and joins
// again.
func TestPendingNodeRestarts(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(2)
		without := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(all.Nodes), 3, 4)}
		for rank, err := range w.reduceIn(2, without, 0, 1, 2, 4) {
			if err != nil {
				t.Errorf("without the pending node, rank %d: %v", rank, err)
			}
		}
		w.meshes[3].Abort()
		time.Sleep(time.Minute)
		for _, slot := range []int{0, 1, 2, 4} {
			w.meshes[slot].Expect(all.Nodes[3:4])
		}
		last := membership.View{Epoch: 3, Nodes: append(slices.Clone(without.Nodes), all.Nodes[3])}
		w.join(last, 3)
		for rank, err := range w.reduceIn(3, last, 0, 1, 2, 4, 3) {
			if err != nil {
				t.Errorf("with the pending node, rank %d: %v", rank, err)
			}
		}
	})
}

// TestReportOfNewcomerIsIgnored: a node that is in no view yet loses a node of the world. The
// others ignore its report and continue.
func TestReportOfNewcomerIsIgnored(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.newcomers(1)
		time.Sleep(time.Second)
		w.network.SetLink(w.host(3), w.host(0), sim.Link{Down: true})
		time.Sleep(time.Minute)
		for rank, err := range w.reduce(0, 1, 2) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if got := w.notes[3].all(); !slices.Equal(got, []int{0}) {
			t.Errorf("the newcomer: failed nodes %v, want 0", got)
		}
	})
}

// dialWithoutLink makes a node that is in no view yet dial rank 0, without beginning a link. It returns a
// function that ends the node.
func (w *world) dialWithoutLink(id membership.NodeID) (end func()) {
	w.Helper()
	t, err := w.network.Host(id.String()).Listen(7000)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := t.Dial(w.Context(), w.host(0)+simPort, ""); err != nil {
		w.Fatal(err)
	}
	time.Sleep(4 * delay)
	return func() { t.Close() }
}

// withNode returns the next view, with another node.
func (w *world) withNode(id membership.NodeID, addr string) membership.View {
	return membership.View{Epoch: 2, Nodes: append(slices.Clone(w.view.Nodes), membership.Node{ID: id, Addrs: []string{addr}, Host: id.String()})}
}

// TestAdoptEndsWithItsContext: a later view ends the wait of a node for the link of a newcomer. The
// newcomer is not lost and is in the later view.
func TestAdoptEndsWithItsContext(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.lost = func(id membership.NodeID, err error) { t.Errorf("%s was reported lost: %v", id, err) }
		w.form()
		next := w.withNode(idOf(3), idOf(3).String())
		m := w.meshes[0]
		m.Expect(next.Nodes[3:])
		end := w.dialWithoutLink(idOf(3))
		later := errors.New("a later view")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, later)
		defer cancel()
		if err := m.Adopt(ctx, next); err != later {
			t.Errorf("Adopt: %v, want %v", err, later)
		}
		end()
		all := w.newcomers(1)
		for rank, err := range w.reduceIn(3, membership.View{Epoch: 3, Nodes: all.Nodes}, 0, 1, 2, 3) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestAdoptGivesPendingLinks: a view has a node without links. It gets pending links. Only a node that
// needs its link, and cannot reach it, reports it lost.
func TestAdoptGivesPendingLinks(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var mu sync.Mutex
		lost := make(map[int]int)
		w.watches = 1 // The last node is watched by rank 2, and watches rank 0.
		w.lostBy = func(rank int, id membership.NodeID) {
			mu.Lock()
			defer mu.Unlock()
			if id != idOf(3) {
				t.Errorf("rank %d reports %s lost", rank, id)
			}
			lost[rank]++
		}
		w.form()
		next := w.withNode(idOf(3), "nowhere")
		for _, m := range w.meshes {
			m.Expect(next.Nodes[3:])
			w.adopt(m, next)
			w.adopt(m, next)
			if links := linksOf(t, m, next); links[3] == nil || !links[3].IsPending() {
				t.Error("the link to the new node is not pending")
			}
		}
		time.Sleep(2 * interval)
		mu.Lock()
		defer mu.Unlock()
		if len(lost) > 0 {
			t.Errorf("reported lost by %v before it could be reached", lost)
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		if lost[2] != 1 || lost[1] != 0 {
			t.Errorf("reported lost by %v, want by rank 2 once and not by rank 1", lost)
		}
	})
}

// TestAdoptIsOnePass: a view removes one node, and has another one that an earlier view has removed. The loss
// of the latter is reported to the seed before a communicator ends because of the removal.
func TestAdoptIsOnePass(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var c *engine.Comm
		reported := false
		w.lost = func(id membership.NodeID, _ error) {
			if id != idOf(2) {
				return
			}
			reported = true
			if err := c.Err(); err != nil {
				t.Errorf("the communicator has ended before the report of the loss: %v", err)
			}
		}
		w.form()
		m, nodes := w.meshes[0], w.view.Nodes
		two := membership.View{Epoch: 2, Nodes: nodes[:2]}
		w.adopt(m, two)
		c = m.Engine().NewComm(2, 0, linksOf(t, m, two))
		w.adopt(m, membership.View{Epoch: 3, Nodes: []membership.Node{nodes[0], nodes[2]}})
		if !reported {
			t.Error("the loss of the node without a link was not reported")
		}
		wantPeerError(t, c.Err(), 1, false)
	})
}
