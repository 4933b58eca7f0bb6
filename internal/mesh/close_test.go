package mesh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport/sim"
)

func TestAllClose(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, time.Second} {
		inBubble(t, 5, func(w *world) {
			w.form()
			began := time.Now()
			var all sync.WaitGroup
			for rank, m := range w.meshes {
				all.Go(func() {
					time.Sleep(time.Duration(rank) * apart)
					if err := m.Close(w.Context()); err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(began) - 4*apart; took > 3*delay {
				t.Errorf("%v apart: it took %v longer", apart, took)
			}
			for rank, n := range w.notes {
				if got := n.all(); len(got) > 0 {
					t.Errorf("%v apart: rank %d: failed nodes %v", apart, rank, got)
				}
			}
		})
	}
}

// TestBreakWhileClosing: two ranks exchange messages, as in a last barrier, and rank 0 leaves as soon as it has that of rank 1. Their connection breaks
// at about that time. Both messages arrive, the send of rank 1 succeeds, and rank 0 has left for rank 1.
func TestBreakWhileClosing(t *testing.T) {
	for _, size := range []int{8, 1 << 20} {
		for after := time.Duration(0); after <= 10*delay; after += delay / 2 {
			t.Run(fmt.Sprintf("%d bytes, break after %v", size, after), func(t *testing.T) {
				inBubble(t, 2, func(w *world) {
					w.form()
					time.Sleep(300 * time.Millisecond) // between two heartbeats
					time.AfterFunc(after, func() { w.cut(0, 1) })
					var both sync.WaitGroup
					both.Go(func() {
						wantNone(t, sendOn(w.Context(), w.comms[1], make([]byte, size), 1, 0, 5))
					})
					both.Go(func() {
						_, err := recvOn(w.Context(), w.comms[1], make([]byte, 8), 1, 0, 5)
						wantNone(t, err)
					})
					both.Go(func() {
						wantNone(t, sendOn(w.Context(), w.comms[0], make([]byte, 8), 1, 1, 5))
						_, err := recvOn(w.Context(), w.comms[0], make([]byte, size), 1, 1, 5)
						wantNone(t, err)
						began := time.Now()
						unread, err := w.meshes[0].Leave(w.Context(), nil)
						if took := time.Since(began); err != nil || len(unread) > 0 || took > interval {
							t.Errorf("rank 0 has left after %v, %d have not read everything, %v", took, len(unread), err)
						}
					})
					both.Wait()
					time.Sleep(interval)
					if state := w.stateOf(1, 0); state != membership.PeerLeft {
						t.Errorf("for rank 1, the state of rank 0 is %v, want %v", state, membership.PeerLeft)
					}
					w.wantNoFailures()
				})
			})
		}
	}
}

// TestCloseAfterABreak: a connection breaks when neither side has anything to send or to acknowledge, and rank 0 leaves. It says goodbye over the next
// connection: rank 1, which dials as well, would take it for failed.
func TestCloseAfterABreak(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		for range 2 { // The second connection begins with acknowledgements of everything.
			time.Sleep(300 * time.Millisecond)
			w.cut(0, 1)
		}
		synctest.Wait()
		if !w.linkOf(0, 1).IsPending() {
			t.Fatal("the link has not broken")
		}
		w.meshes[0].Close(w.Context())
		time.Sleep(interval)
		if state := w.stateOf(1, 0); state != membership.PeerLeft {
			t.Errorf("for rank 1, the state of rank 0 is %v, want %v", state, membership.PeerLeft)
		}
		w.wantNoFailures()
	})
}

// wantNone checks that there is no error.
func wantNone(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestCloseTwice(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { w.meshes[0].Close(w.Context()) })
		}
		all.Wait()
		w.meshes[0].Close(w.Context())
		if _, err := w.comms[0].Start(&exec.Work{}); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("an operation after Close: %v, want %v", err, engine.ErrClosed)
		}
		if err := w.meshes[0].Adopt(w.Context(), w.swapped(0, 1)); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("Adopt after Close: %v, want %v", err, engine.ErrClosed)
		}
	})
}

// TestCloseBeforeFormed: a mesh can be closed before Formed, even while a link is made again.
func TestCloseBeforeFormed(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		w.network.Crash(w.host(0))
		time.Sleep(time.Second)
		var all sync.WaitGroup
		for _, m := range w.meshes {
			all.Go(func() { m.Close(w.Context()) })
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestCloseWithoutPeers closes during operations and transfers when a peer has died or does not read.
func TestCloseWithoutPeers(t *testing.T) {
	const limit = 3 * time.Second
	for name, test := range map[string]struct {
		before func(n *sim.Network, host string)
		most   time.Duration
	}{
		"crashed":     {(*sim.Network).Crash, 3 * delay},
		"powered off": {(*sim.Network).PowerOff, limit},
		"cut off":     {func(n *sim.Network, host string) { n.Partition(host) }, limit},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(w *world) {
				w.form()
				var pending sync.WaitGroup
				for _, to := range []int{1, 2} {
					pending.Go(func() {
						if err := sendOn(w.Context(), w.comms[0], make([]byte, 1<<20), 1, to, 1); err == nil {
							t.Error("a message without a receiver was sent")
						}
					})
				}
				time.Sleep(100 * time.Millisecond)
				test.before(w.network, w.host(2))
				ctx, cancel := context.WithTimeout(w.Context(), limit)
				defer cancel()
				began := time.Now()
				w.meshes[0].Close(ctx)
				if took := time.Since(began); took > test.most {
					t.Errorf("it took %v, want at most %v", took, test.most)
				}
				pending.Wait()
			})
		})
	}
}

// TestCloseAwaitsProposals: a link that has got its connection, but not yet its route, is not sorted among those to neighbors.
func TestCloseAwaitsProposals(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m, r := w.meshes[0], new(route)
		m.loop.ask(func() { m.peers[1].proposal = r })
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			m.awaitNeeded(w.Context())
		}()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("Close did not wait for the end of a proposal")
		default:
		}
		began := time.Now()
		m.proposals.end(r, 1, m.peer(1).link, false)
		<-waited
		if took := time.Since(began); took > 0 {
			t.Errorf("Close waited for %v after the end of the proposal", took)
		}
	})
}
