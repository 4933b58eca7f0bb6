package mesh

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// reports collects the calls of Config.Linked.
type reports struct {
	mu  sync.Mutex
	ups []bool
}

func (r *reports) add(_ membership.NodeID, up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ups = append(r.ups, up)
}

func (r *reports) take() []bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ups := r.ups
	r.ups = nil
	return ups
}

// TestLinksAreReported: a node reports each time that its end of the link to a newcomer comes up or
// is lost.
func TestLinksAreReported(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		var told reports
		w.meshes[1].cfg.Linked = told.add
		all := w.newcomers(1)
		time.Sleep(time.Second)
		if got := told.take(); !slices.Equal(got, []bool{true}) {
			t.Errorf("after the newcomer has joined: reported %v, want true", got)
		}
		w.meshes[3].Abort()
		time.Sleep(time.Minute)
		if got := told.take(); !slices.Equal(got, []bool{false}) {
			t.Errorf("after it has died: reported %v, want false", got)
		}
		w.join(all, 3)
		time.Sleep(time.Second)
		if got := told.take(); !slices.Equal(got, []bool{true}) {
			t.Errorf("after it has joined again: reported %v, want true", got)
		}
	})
}

// TestNewcomerLeavesAndJoinsAgain: a newcomer says goodbye before it is in a view, and is expected again. It gets another link.
func TestNewcomerLeavesAndJoinsAgain(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		all := w.newcomers(1)
		if err := w.meshes[2].Close(w.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.listen(2)
		for _, m := range w.meshes[:2] {
			m.Expect(all.Nodes[2:])
		}
		w.join(all, 2)
		for rank, err := range w.reduceIn(2, membership.View{Epoch: 2, Nodes: all.Nodes}, 0, 1, 2) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.wantNoFailures()
	})
}

// TestConnectionOfAnEarlierNode: a slot is given to another node while its node is dialed. The connection to that node is not used.
func TestConnectionOfAnEarlierNode(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.watches = 1
		w.form()
		p := w.meshes[0].peer(1)
		d := w.meshes[0].dialer.search(&p)
		r, err := d.dialPaths(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.cut(0, 2)
		if err := w.meshes[0].proposals.connect(w.Context(), r, 2, d.node.ID, nil, nil); !errors.Is(err, errNotPending) {
			t.Errorf("got %v, want %v", err, errNotPending)
		}
		select {
		case <-r.conn.Done():
		default:
			t.Error("the connection is open")
		}
	})
}

// TestForget: the memory for newcomers that never join does not grow with their number. The next
// newcomer reuses the slot, and its link belongs to the right node.
func TestForget(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m := w.meshes[0]
		for i := range 200 {
			n := membership.Node{ID: idOf(100), Addrs: []string{"nowhere"}}
			n.ID[1] = byte(i)
			m.Expect([]membership.Node{n})
			m.Forget(n.ID)
			m.Forget(n.ID)
		}
		all := w.newcomers(1)
		w.meshes[0].Forget(idOf(2)) // The link ends as well.
		time.Sleep(time.Minute)
		w.meshes[0].Expect(all.Nodes[2:])
		w.meshes[2].Abort()
		w.join(all, 2)
		time.Sleep(time.Second)
		m.mu.Lock()
		slots, expected := len(m.peers), 0
		for _, p := range m.peers {
			if !p.State.IsMember() {
				expected++
			}
		}
		m.mu.Unlock()
		if slots > 3 || expected != 1 {
			t.Errorf("%d slots, %d nodes expected, want 3 and 1", slots, expected)
		}
		for rank, err := range w.reduceIn(2, membership.View{Epoch: 2, Nodes: all.Nodes}, 0, 1, 2) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		// Forget ignores a node of the view.
		m.Forget(idOf(2))
		for rank, err := range w.reduceIn(3, membership.View{Epoch: 3, Nodes: all.Nodes}, 0, 1, 2) {
			if err != nil {
				t.Errorf("after Forget of a node of the view, rank %d: %v", rank, err)
			}
		}
	})
}

// TestForgetWhileLinkEnds: the link of a candidate ends while the candidate is forgotten. That is
// no failure, since the candidate has no rank.
func TestForgetWhileLinkEnds(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		candidate := w.newcomers(1).Nodes[2]
		m := w.meshes[0]
		slot, l := 2, w.linkOf(0, 2)
		rounds := 10_000
		if testing.Short() {
			rounds = 1000
		}
		for range rounds {
			reading, ended := make(chan struct{}), make(chan struct{})
			go func() { // the reader of the link
				defer close(ended)
				close(reading)
				for p := m.peer(slot); p.link == l; p = m.peer(slot) {
					if p.State.IsMember() {
						m.linkEnded(l, membership.LinkLost, transport.ErrPeerGone)
						return
					}
				}
			}()
			<-reading
			m.Forget(candidate.ID)
			<-ended
			w.awaitFree(m, slot)
			m.Expect([]membership.Node{candidate})
			m.loop.ask(func() { m.peers[slot].link = l })
		}
		w.wantNoFailures()
	})
}

// awaitFree waits until a mesh may reuse a slot.
func (w *world) awaitFree(m *Mesh, slot int) {
	for {
		m.mu.Lock()
		free := slices.Contains(m.free, slot)
		m.mu.Unlock()
		if free {
			return
		}
		runtime.Gosched() // No time passes: the other end of the link must not notice its end.
	}
}

// TestEventOfForgottenNode: an event is ignored if its slot belongs to another node meanwhile.
func TestEventOfForgottenNode(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		w.newcomers(1)
		m := w.meshes[0]
		before := m.peer(1)
		m.loop.perform(func() func() {
			return m.decideOnLocked(event{slot: 1, id: idOf(2), kind: membership.LinkLost, err: transport.ErrPeerGone})
		})
		if after := m.peer(1); after.State != before.State || after.link != before.link {
			t.Errorf("state %v, want %v", after.State, before.State)
		}
		w.wantNoFailures()
	})
}

// TestReusedSlot: a node is forgotten while its link is being made. The link is not used for the next
// node in the slot.
func TestReusedSlot(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.form()
		w.newcomers(1)
		m := w.meshes[0]
		m.mu.Lock()
		l, r, slot := m.peers[1].link, m.peers[1].route, 1
		m.mu.Unlock()
		other := membership.Node{ID: idOf(9), Addrs: []string{"nowhere"}}
		m.Forget(idOf(1))
		w.awaitFree(m, slot)
		m.Expect([]membership.Node{other})
		if got := m.peer(slot).node; got.ID != other.ID {
			t.Fatalf("slot %d has node %v, want %v", slot, got.ID, other.ID)
		}
		if err := m.proposals.begin(w.Context(), r, slot, l, nil); !errors.Is(err, link.ErrConnected) {
			t.Error("the link is used for another node")
		}
	})
}

// TestForgetEndsWaitingProposals: a node is forgotten, or gets another link, while a proposal waits for another one. The proposal ends at once.
func TestForgetEndsWaitingProposals(t *testing.T) {
	for name, ends := range map[string]func(m *Mesh, slot int){
		"forgotten":    func(m *Mesh, slot int) { m.Forget(m.peer(slot).node.ID) },
		"another link": func(m *Mesh, slot int) { m.loop.ask(func() { m.addPendingLocked(slot) }) },
		"no link":      func(m *Mesh, slot int) { m.loop.ask(func() { m.takeLinkLocked(slot) }) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.form()
				const slot = 2
				m := w.meshes[0]
				m.Expect([]membership.Node{{ID: idOf(9), Addrs: []string{"nowhere"}}})
				m.loop.ask(func() { m.peers[slot].proposal = new(route) })
				time.AfterFunc(time.Second, func() { ends(m, slot) })
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				began, r := time.Now(), &route{conn: testConns(w, 1)[0]}
				err := m.proposals.begin(ctx, r, slot, m.peer(slot).link, nil)
				if took := time.Since(began); !errors.Is(err, link.ErrConnected) || took != time.Second {
					t.Errorf("after %v: %v, want %v after 1s", took, err, link.ErrConnected)
				}
			})
		})
	}
}

// TestAdoptWaitsForBoundedTime: Adopt waits at most SettleTimeout for a new node that has dialed and begins
// no link.
func TestAdoptWaitsForBoundedTime(t *testing.T) {
	for _, test := range []struct{ settle, heartbeat, want time.Duration }{
		{2 * time.Second, timeout, 2 * time.Second},
		{0, timeout, timeout},
		{0, 0, settleDefault},
	} {
		m := &Mesh{cfg: Config{SettleTimeout: test.settle, HeartbeatTimeout: test.heartbeat}}
		if got := m.cfg.adoptTimeout(); got != test.want {
			t.Errorf("set to %v, heartbeat timeout %v: got %v, want %v", test.settle, test.heartbeat, got, test.want)
		}
	}
	inBubble(t, 3, func(w *world) {
		w.lost = func(id membership.NodeID, err error) { t.Errorf("%s was reported lost: %v", id, err) }
		w.form()
		m, next := w.meshes[0], w.withNode(idOf(3), idOf(3).String())
		m.Expect(next.Nodes[3:])
		defer w.dialWithoutLink(idOf(3))()
		began := time.Now()
		w.adopt(m, next)
		if took := time.Since(began); took != timeout || !linksOf(t, m, next)[3].IsPending() {
			t.Errorf("after %v the link of the newcomer is not pending, want that after %v", took, timeout)
		}
	})
}

// TestUnreachableJoiningNode: a newcomer is linked to the world although another joining node is
// unreachable. Form reports the links to both.
func TestUnreachableJoiningNode(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		w.newcomers(1)
		view := membership.View{Epoch: 1, Nodes: slices.Clone(w.view.Nodes)}
		unreachable := membership.Node{ID: idOf(9), Addrs: []string{"nowhere"}, Host: "nowhere"}
		all := append(slices.Clone(view.Nodes), membership.Node{ID: idOf(3), Addrs: []string{idOf(3).String()}, Host: idOf(3).String()}, unreachable)
		rank := len(all)
		id := idOf(4)
		all = append(all, membership.Node{ID: id, Addrs: []string{id.String()}, Host: id.String()})
		w.notes = append(w.notes, &notes{failed: make(map[int]int)})
		w.network.Host(id.String())
		w.transports, w.meshes, w.comms = append(w.transports, nil), append(w.meshes, nil), append(w.comms, nil)
		w.listen(4)
		for _, m := range w.meshes[:4] {
			m.Expect(all[rank:])
		}
		cfg := Config{
			Self: id, View: membership.View{Epoch: 1, Nodes: all}, World: 3, Paths: []Path{{Transport: w.transports[4]}}, Loop: w.config(0).Loop,
		}
		var reachable, unreachableUp bool
		cfg.Linked = func(id membership.NodeID, up bool) {
			if id == idOf(3) {
				reachable = up
			} else {
				unreachableUp = unreachableUp || up
			}
		}
		began := time.Now()
		m, err := Form(w.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.meshes[4] = m
		if err := m.Formed(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > joiningTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
		if !reachable || unreachableUp {
			t.Errorf("reported links: %t to node 3, %t to node 9, want the first one alone", reachable, unreachableUp)
		}
	})
}
