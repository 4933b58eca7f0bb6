package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/sim"
)

// A partialLeave makes rank 3 of four leave: its goodbye reaches ranks 1 and 2, but not rank 0.
type partialLeave struct {
	name string
	// leave is called before Close, on a separate goroutine.
	leave func(w *world)
	// accuser is the rank that has lost rank 3 according to errors; -1 if rank 3 may report
	// rank 0 before it leaves.
	accuser int
}

func partialLeaves() []partialLeave {
	errProtocol := errors.New("link: protocol error: of the test")
	list := []partialLeave{
		{"packets to rank 0 are lost", func(w *world) {
			w.network.SetOneWay(w.host(3), w.host(0), sim.Link{Down: true})
		}, 0},
		{"packets in both directions are lost", func(w *world) {
			w.network.SetLink(w.host(3), w.host(0), sim.Link{Down: true})
		}, 0},
		{"it aborts the link to rank 0", func(w *world) { w.linkOf(3, 0).Abort() }, 0},
		{"it aborts the link to rank 0, and its goodbyes are late", func(w *world) {
			for _, rank := range []int{1, 2} {
				w.network.SetOneWay(w.host(3), w.host(rank), sim.Link{Delay: 500 * time.Millisecond})
			}
			w.linkOf(3, 0).Abort()
		}, 0},
		{"the reports of rank 0 are late", func(w *world) {
			for _, rank := range []int{1, 2} {
				w.network.SetOneWay(w.host(0), w.host(rank), sim.Link{Delay: 500 * time.Millisecond})
			}
			w.linkOf(3, 0).Abort()
		}, 0},
		{"rank 0 detects a protocol error before its goodbye arrives", func(w *world) {
			w.network.SetOneWay(w.host(3), w.host(0), sim.Link{Delay: 500 * time.Millisecond})
			time.AfterFunc(100*time.Millisecond, func() { w.linkOf(0, 3).Fail(errProtocol) })
		}, 0},
		{"rank 0 cannot reach rank 1", func(w *world) {
			w.network.SetOneWay(w.host(0), w.host(1), sim.Link{Delay: 2 * time.Second})
			w.network.SetOneWay(w.host(3), w.host(0), sim.Link{Down: true})
		}, 0},
	}
	for _, after := range []time.Duration{0, delay / 2, delay, 3 * delay / 2, 2 * delay} {
		list = append(list, partialLeave{fmt.Sprint("rank 0 detects a protocol error after ", after), func(w *world) {
			go func() {
				time.Sleep(after)
				w.linkOf(0, 3).Fail(errProtocol)
			}()
		}, 0}, partialLeave{fmt.Sprint("it detects a protocol error after ", after), func(w *world) {
			go func() {
				time.Sleep(after)
				w.linkOf(3, 0).Fail(errProtocol)
			}()
		}, -1})
	}
	return list
}

// TestPartialLeave: rank 3 leaves, and rank 0 loses it. Ranks 1 and 2 have read its goodbye and
// wait for rank 0. Within the heartbeat timeout and a second their communicator ends with an
// error that names the failed rank and the rank that lost it. No link between other ranks ends.
// If the link of rank 0 breaks after rank 0 has read the goodbye, rank 3 has left for all, and
// all continue.
func TestPartialLeave(t *testing.T) {
	for _, c := range partialLeaves() {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, 4, func(w *world) {
				lost := make(map[int][]membership.NodeID)
				var mu sync.Mutex
				w.lostBy = func(rank int, id membership.NodeID) {
					mu.Lock()
					defer mu.Unlock()
					lost[rank] = append(lost[rank], id)
				}
				w.form()
				time.Sleep(10*time.Second + 300*time.Millisecond)
				ctx, cancel := context.WithTimeout(w.Context(), timeout+2*time.Second)
				defer cancel()
				began, errs := time.Now(), make([]error, 4)
				var all sync.WaitGroup
				for rank := range 3 {
					all.Go(func() {
						_, errs[rank] = recvOn(ctx, w.comms[rank], make([]byte, 8), 1, (rank+1)%2, 5)
						if took, most := time.Since(began), silence; took > most && ctx.Err() == nil {
							t.Errorf("rank %d has waited for %v, want at most %v", rank, took, most)
						}
					})
				}
				closing, stop := context.WithTimeout(w.Context(), time.Second)
				defer stop()
				c.leave(w)
				w.meshes[3].Close(closing)
				all.Wait()
				goOn := errors.Is(errs[0], context.DeadlineExceeded)
				if left := w.stateOf(0, 3) == membership.PeerLeft; goOn != left {
					t.Fatalf("rank 0: %v; rank 3 has left for it: %v", errs[0], left)
				}
				for rank := range 3 {
					if goOn {
						if !errors.Is(errs[rank], context.DeadlineExceeded) {
							t.Errorf("rank %d: %v, want its receive to continue", rank, errs[rank])
						}
						continue
					}
					p, ok := errors.AsType[*engine.PeerError](errs[rank])
					switch {
					case c.accuser < 0 && ok && isRank(p.Rank, 0): // Rank 3 has reported rank 0 before it left.
					case !ok || !isRank(p.Rank, 3) || p.Left:
						t.Errorf("rank %d: %v, want the failure of rank 3", rank, errs[rank])
					case rank > 0 && !strings.Contains(p.Error(), "as rank 0 reports"):
						t.Errorf("rank %d: %v, want that rank 0 has lost rank 3", rank, p)
					}
				}
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				for rank := range 3 {
					if got := lost[rank]; (rank > 0 || goOn) && len(got) > 0 || rank == 0 && !goOn && !slices.Equal(got, []membership.NodeID{idOf(3)}) {
						t.Errorf("rank %d reports these as lost: %v, want rank 3 by rank 0 alone", rank, got)
					}
				}
			})
		})
	}
}

// stateOf returns the state of a rank in the mesh of another one.
func (w *world) stateOf(of, rank int) membership.PeerState {
	m := w.meshes[of]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[rank].State
}

// TestLeaveWithoutLoss: a rank leaves. Operations that do not need it continue, in any order of
// its goodbyes.
func TestLeaveWithoutLoss(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		w.network.SetOneWay(w.host(3), w.host(0), sim.Link{Delay: timeout - interval})
		goesOn := w.pending(func(int) int { return 0 }, 1)
		w.meshes[3].Close(w.Context())
		time.Sleep(time.Minute)
		if err := sendOn(w.Context(), w.comms[0], make([]byte, 8), 1, 1, 5); err != nil {
			t.Error(err)
		}
		if err := goesOn()[1]; err != nil {
			t.Errorf("a receive that does not need the rank that has left: %v", err)
		}
		w.wantNoFailures()
	})
}

// TestSendsToALeaver: a rank sends to one that leaves at about that time. They have no connection, since the last one was idle. The one that leaves refuses
// a connection, and does not count as failed: the communicator remains usable.
func TestSendsToALeaver(t *testing.T) {
	for after := time.Duration(0); after <= 10*delay; after += delay / 2 {
		inBubble(t, demandNodes, func(w *world) {
			w.watches, w.idle = 1, time.Minute
			w.form()
			if err := w.exchange(3, 0); err != nil {
				t.Fatal(err)
			}
			for !w.linkOf(0, 3).IsPending() || !w.linkOf(3, 0).IsPending() {
				time.Sleep(time.Second)
			}
			time.AfterFunc(after, func() { w.meshes[0].Close(w.Context()) })
			for _, size := range []int{1 << 20, 8} {
				wantPeerError(t, sendOn(w.Context(), w.comms[3], make([]byte, size), 1, 0, 5), 0, true)
			}
			if err := w.exchange(3, 4); err != nil {
				t.Errorf("a message between ranks that stay: %v", err)
			}
			w.wantNoFailures()
		})
	}
}

// TestDoubtedRankIsNotified: ranks 0 and 2 lose each other. Rank 1 doubts both and ends its
// communicator with rank 0, but not the link. Rank 0 is notified, and trusts rank 1 again in
// the next view.
func TestDoubtedRankIsNotified(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		pair := membership.View{Epoch: 1, Nodes: w.view.Nodes[:2]}
		c := w.meshes[0].Engine().NewComm(7, 0, linksOf(t, w.meshes[0], pair))
		w.meshes[1].Engine().NewComm(7, 1, linksOf(t, w.meshes[1], pair))
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.network.SetLink(w.host(0), w.host(2), sim.Link{Down: true})
		_, err := recvOn(ctx, c, make([]byte, 8), 1, 1, 5)
		wantPeerError(t, err, 1, false)
		if err == nil || !strings.Contains(err.Error(), "considers this node failed") || !strings.Contains(err.Error(), "as rank 2 reports") {
			t.Errorf("got error %v, want that rank 1 considers this node failed, as rank 2 reports", err)
		}
		if got := w.notes[0].all(); !slices.Equal(got, []int{2}) {
			t.Errorf("rank 0: failed nodes %v, want 2", got)
		}
		next := membership.View{Epoch: 2, Nodes: w.view.Nodes[:2]}
		comms := make([]*engine.Comm, 2)
		for rank, m := range w.meshes[:2] {
			w.adopt(m, next)
			comms[rank] = m.Engine().NewComm(8, rank, linksOf(t, m, next))
		}
		for rank, c := range comms {
			if c.Err() != nil {
				t.Errorf("in the next view, rank %d: %v", rank, c.Err())
			}
		}
	})
}

// TestRemovedRankEndsComms: rank 0 adopts the next view, without rank 3, and ends a
// communicator that contains rank 3. Rank 2, which has neither adopted the view nor lost a
// link, waits for rank 0 in that communicator, and is notified.
func TestRemovedRankEndsComms(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		some := membership.View{Epoch: 1, Nodes: []membership.Node{w.view.Nodes[0], w.view.Nodes[2], w.view.Nodes[3]}}
		comms := make([]*engine.Comm, 4)
		for i, rank := range []int{0, 2, 3} {
			comms[rank] = w.meshes[rank].Engine().NewComm(7, i, linksOf(t, w.meshes[rank], some))
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() {
			w.adopt(w.meshes[0], membership.View{Epoch: 2, Nodes: w.view.Nodes[:3]})
		})
		_, err := recvOn(ctx, comms[2], make([]byte, 8), 1, 0, 5)
		wantPeerError(t, err, 2, false)
		wantPeerError(t, comms[0].Err(), 2, false)
		for rank, n := range w.notes[:3] { // Rank 3 may have seen the end of its link to rank 0 by now.
			if f := n.all(); len(f) > 0 {
				t.Errorf("rank %d: failed nodes %v", rank, f)
			}
		}
	})
}

// TestLeaveOfAnUnwatchedPeer: the goodbye of a rank does not reach a rank that waits for it and does
// not watch it. The wait ends after the seed's next view.
func TestLeaveOfAnUnwatchedPeer(t *testing.T) {
	const n, leaver = 10, 3
	inBubble(t, n, func(w *world) {
		far := w.ranks(append(membership.Watchers(w.view, leaver, membership.WatchersDefault), leaver)...)[0]
		next := w.view
		var mu sync.Mutex
		w.newest = func() membership.View {
			mu.Lock()
			defer mu.Unlock()
			return next
		}
		w.form()
		time.Sleep(10 * time.Second)
		w.network.SetOneWay(w.host(leaver), w.host(far), sim.Link{Down: true})
		began := time.Now()
		time.AfterFunc(20*time.Millisecond, func() {
			mu.Lock()
			defer mu.Unlock()
			next = membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(w.view.Nodes), leaver, leaver+1)}
		})
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		go w.meshes[leaver].Close(ctx)
		ctx, cancel = context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err := recvOn(ctx, w.comms[far], make([]byte, 8), 1, leaver, 5)
		wantPeerError(t, err, leaver, false)
		if took, most := time.Since(began), silence+interval+delay; took > most {
			t.Errorf("it took %v, at most %v was needed", took, most)
		}
		for rank := range n {
			if got := w.notes[rank].all(); rank != far && len(got) > 0 {
				t.Errorf("rank %d: failed nodes %v", rank, got)
			}
		}
	})
}

// TestCloseDoesNotWaitForADeadPeer: a node dies that is no neighbor of rank 0. Frames of that rank wait for a connection to it, or there
// is one over relays. Other nodes report the death before all begin to close, or rank 0 alone, or after rank 0 has: none of them waits for
// the dead one.
func TestCloseDoesNotWaitForADeadPeer(t *testing.T) {
	for name, test := range map[string]struct {
		early            time.Duration
		connected, alone bool
	}{
		"reported before": {}, "reported after": {early: 4 * interval, alone: true},
		"with a connection": {connected: true}, "with a connection, alone": {connected: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			relayed(t, "k-regular:4", 9, func(w *world) {
				w.form()
				dead := 1
				for slices.Contains(w.neighbors(9, 0), dead) {
					dead++
				}
				if test.connected {
					if err := w.exchange(0, dead); err != nil {
						t.Fatal(err)
					}
				}
				w.network.PowerOff(w.host(dead))
				early, l := test.early, w.linkOf(0, dead)
				l.SendMessage(wire.Message{Comm: 1}, []byte("x"))
				time.Sleep(timeout + 3*interval - early)
				if isKnown := w.stateOf(0, dead) == membership.PeerDoubted; isKnown != (early == 0) || l.IsPending() == test.connected {
					t.Fatalf("rank 0 takes the node for dead: %t, has no connection: %t", isKnown, l.IsPending())
				}
				began := time.Now()
				var all sync.WaitGroup
				for _, rank := range w.ranks(dead) {
					if !test.alone || rank == 0 {
						all.Go(func() { w.meshes[rank].Close(w.Context()) })
					}
				}
				all.Wait()
				if took := time.Since(began); took > early+2*interval {
					t.Errorf("the nodes have left after %v, want at most %v", took, early+2*interval)
				}
			})
		})
	}
}
