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

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport/sim"
)

// newcomers are nodes beside those of a world, each of which links itself to all
// before it.
func (w *world) newcomers(n int) (all membership.View) {
	w.Helper()
	return w.newcomersAfter(n, 0)
}

// newcomersAfter is newcomers, of whom others hear so long after they have begun to
// link themselves to these.
func (w *world) newcomersAfter(n int, late time.Duration) (all membership.View) {
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
		if late > 0 {
			time.AfterFunc(late, expect)
		} else {
			expect()
		}
		w.come(membership.View{Epoch: 1, Nodes: slices.Clone(all.Nodes)}, rank)
	}
	return all
}

// come links a newcomer, the last of some nodes, to those before it.
func (w *world) come(all membership.View, rank int) {
	w.Helper()
	before := w.view
	w.view = all
	cfg := w.config(rank)
	w.view = before
	cfg.Self, cfg.World = idOf(rank), len(before.Nodes)
	m, err := Form(w.Context(), cfg)
	if err == nil {
		err = m.Formed()
	}
	if err != nil {
		w.Fatalf("newcomer %d: %v", rank, err)
	}
	w.meshes[rank] = m
}

// reduceIn makes an all-reduce of some nodes in a view, and returns their errors.
func (w *world) reduceIn(id uint64, v membership.View, seats ...int) []error {
	errs := make([]error, len(seats))
	var all sync.WaitGroup
	for rank, seat := range seats {
		m := w.meshes[seat]
		w.adopt(m, v)
		links, err := m.Links(v)
		if err != nil {
			errs[rank] = err
			continue
		}
		c := m.Engine().NewComm(id, rank, links)
		all.Go(func() { errs[rank] = reduce(w.Context(), c, rank, len(seats)) })
	}
	all.Wait()
	return errs
}

// TestGrow: two nodes come to a world of three while it works, and are in the next
// view. Then one of the first goes, and they work with the others.
func TestGrow(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		time.Sleep(time.Minute)
		all := w.newcomers(2)
		for rank, err := range w.reduce(0, 1, 2) {
			if err != nil {
				t.Errorf("before they are in the world, rank %d: %v", rank, err)
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
				t.Errorf("without one of them, rank %d: %v", rank, err)
			}
		}
		for _, seat := range []int{0, 2, 3, 4} {
			if got := w.notes[seat].all(); !slices.Equal(got, []int{1}) {
				t.Errorf("for node %d these have failed: %v, want 1", seat, got)
			}
		}
	})
}

// TestNewcomerGoes: one that is in no view yet dies, and comes again. Nobody takes
// that for a failure.
func TestNewcomerGoes(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(1)
		w.meshes[3].Abort()
		time.Sleep(time.Minute)
		w.come(all, 3)
		for rank, err := range w.reduceIn(2, all, 0, 1, 2, 3) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.network.Crash(w.host(3))
		time.Sleep(time.Second)
		for seat := range 3 {
			if got := w.notes[seat].all(); !slices.Equal(got, []int{3}) {
				t.Errorf("for node %d these have failed: %v, want 3, once it was in the world", seat, got)
			}
		}
	})
}

// TestGoneAreForgotten: nothing keeps the link to a node that is not in the world any
// more, or that went before it was: what it shares with this node would be kept, too.
func TestGoneAreForgotten(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.newcomers(1)
		m := w.meshes[0]
		early, late := weak.Make(w.linkOf(0, 3)), weak.Make(w.linkOf(0, 2))
		w.meshes[3].Abort()
		w.meshes[3] = nil
		m.apply(event{slot: 2, id: idOf(2), kind: membership.ReportedLost, err: &reportedError{by: 1, text: "it is silent"}})
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
		t.Errorf("links are still there: %t to one that went early, %t to one of the world", early.Value() != nil, late.Value() != nil)
	})
}

// TestNewcomerIsEarly: the others hear of one a moment after it has called them. It
// calls them again, and is linked to them when it says so.
func TestNewcomerIsEarly(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomersAfter(2, 300*time.Millisecond)
		time.Sleep(time.Minute)
		for rank, err := range w.reduceIn(2, all, 0, 1, 2, 3, 4) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		for seat := range 5 {
			if got := w.notes[seat].all(); len(got) > 0 {
				t.Errorf("for node %d these have failed: %v, want none", seat, got)
			}
		}
	})
}

// TestWaits: one that waits stays linked to another that is in the world before it, and
// is in the next view.
func TestWaits(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(2)
		without := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(all.Nodes), 3, 4)}
		last := membership.View{Epoch: 3, Nodes: append(slices.Clone(without.Nodes), all.Nodes[3])}
		for rank, err := range w.reduceIn(2, without, 0, 1, 2, 4) {
			if err != nil {
				t.Errorf("without it, rank %d: %v", rank, err)
			}
		}
		time.Sleep(time.Minute)
		for rank, err := range w.reduceIn(3, last, 0, 1, 2, 4, 3) {
			if err != nil {
				t.Errorf("with it, rank %d: %v", rank, err)
			}
		}
	})
}

// TestWaitersLoseEachOther: the one that has linked itself to the other says so, and
// nobody has failed.
func TestWaitersLoseEachOther(t *testing.T) {
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
			t.Errorf("these were lost: %v, want node 3, once", lost)
		}
		for seat := range 5 {
			if got := w.notes[seat].all(); len(got) > 0 {
				t.Errorf("for node %d these have failed: %v, want none", seat, got)
			}
		}
	})
}

// TestWaitsAndComesAgain: one that waited beside another, which is in the world before
// it, gives all its links up and comes again.
func TestWaitsAndComesAgain(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		all := w.newcomers(2)
		without := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(all.Nodes), 3, 4)}
		for rank, err := range w.reduceIn(2, without, 0, 1, 2, 4) {
			if err != nil {
				t.Errorf("without it, rank %d: %v", rank, err)
			}
		}
		w.meshes[3].Abort()
		time.Sleep(time.Minute)
		for _, seat := range []int{0, 1, 2, 4} {
			w.meshes[seat].Expect(all.Nodes[3:4])
		}
		last := membership.View{Epoch: 3, Nodes: append(slices.Clone(without.Nodes), all.Nodes[3])}
		w.come(last, 3)
		for rank, err := range w.reduceIn(3, last, 0, 1, 2, 4, 3) {
			if err != nil {
				t.Errorf("with it, rank %d: %v", rank, err)
			}
		}
	})
}

// TestNewcomerAccusesNobody: a node that is in no view yet loses one of the world.
// The others do not listen to it, and their work goes on.
func TestNewcomerAccusesNobody(t *testing.T) {
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
			t.Errorf("for the newcomer these have failed: %v, want 0", got)
		}
	})
}

// TestOvertaken: there is a later view while a node waits for a newcomer to link itself
// to it, as after packets were lost. It does not take that for lost, and works with it
// in the later view.
func TestOvertaken(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.lost = func(id membership.NodeID, err error) { t.Errorf("%s is said to be lost: %v", id, err) }
		w.form()
		next := membership.View{Epoch: 2, Nodes: append(slices.Clone(w.view.Nodes), membership.Node{ID: idOf(3), Addrs: []string{idOf(3).String()}, Host: idOf(3).String()})}
		m := w.meshes[0]
		m.Expect(next.Nodes[3:])
		later := errors.New("there is a later view")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, later)
		defer cancel()
		if err := m.Adopt(ctx, next); err != later {
			t.Errorf("a view that a node gives up is adopted: %v, want %v", err, later)
		}
		all := w.newcomers(1)
		for rank, err := range w.reduceIn(3, membership.View{Epoch: 3, Nodes: all.Nodes}, 0, 1, 2, 3) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestUnlinked: a view has a node that never came. All who miss it say so, once.
func TestUnlinked(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var mu sync.Mutex
		lost := make(map[membership.NodeID]int)
		w.lost = func(id membership.NodeID, _ error) {
			mu.Lock()
			defer mu.Unlock()
			lost[id]++
		}
		w.form()
		next := membership.View{Epoch: 2, Nodes: append(slices.Clone(w.view.Nodes), membership.Node{ID: idOf(3), Addrs: []string{"nowhere"}})}
		for _, m := range w.meshes {
			m.Expect(next.Nodes[3:])
			w.adopt(m, next)
			w.adopt(m, next)
			if _, err := m.Links(next); err == nil {
				t.Error("a link to nobody")
			}
		}
		if lost[idOf(3)] != 3 || len(lost) != 1 {
			t.Errorf("these were lost: %v, want one by each of three", lost)
		}
	})
}
