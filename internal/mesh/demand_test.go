package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/sim"
)

// demandNodes is the number of nodes in the worlds of these tests. Each watches the next one.
const demandNodes = 8

func onDemand(t *testing.T, f func(w *world)) {
	t.Helper()
	inBubble(t, demandNodes, func(w *world) {
		w.watches = 1
		w.form()
		f(w)
	})
}

// linked returns the ranks that a rank is linked to.
func (w *world) linked(rank int) (ranks []int) {
	m := w.meshes[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot := range m.peers {
		if slot != rank && m.peers[slot].isLinked() {
			ranks = append(ranks, slot)
		}
	}
	return ranks
}

// exchange sends a message from one rank to another.
func (w *world) exchange(from, to int) error {
	var both sync.WaitGroup
	var sent, received error
	both.Go(func() { sent = sendOn(w.Context(), w.comms[from], []byte("hello"), 1, to, int64(from)) })
	both.Go(func() {
		buf := make([]byte, 8)
		got, err := recvOn(w.Context(), w.comms[to], buf, 1, from, int64(from))
		if received = err; err == nil && string(buf[:got.Bytes]) != "hello" {
			received = fmt.Errorf("received %q", buf[:got.Bytes])
		}
	})
	both.Wait()
	if sent != nil {
		return sent
	}
	return received
}

// TestOnDemandWatches: a world forms with the links of watches alone, and the first message between two
// nodes makes their link.
func TestOnDemandWatches(t *testing.T) {
	onDemand(t, func(w *world) {
		for rank := range demandNodes {
			want := []int{(rank + demandNodes - 1) % demandNodes, (rank + 1) % demandNodes}
			slices.Sort(want)
			if got := w.linked(rank); !slices.Equal(got, want) {
				t.Errorf("rank %d is linked to %v, want %v", rank, got, want)
			}
		}
		if err := w.exchange(0, 4); err != nil {
			t.Fatal(err)
		}
		if got, want := w.linked(0), []int{1, 4, 7}; !slices.Equal(got, want) {
			t.Errorf("after a message to rank 4, rank 0 is linked to %v, want %v", got, want)
		}
		if got, want := w.linked(2), []int{1, 3}; !slices.Equal(got, want) {
			t.Errorf("after a message of others, rank 2 is linked to %v, want %v", got, want)
		}
		paths := w.meshes[0].Paths(w.view)
		for _, p := range paths {
			want := map[int]string{1: "watch", 4: "message", 7: "watch"}[p.Rank]
			if p.Pending != (want == "") || p.Purpose != want {
				t.Errorf("the path to rank %d: pending is %v, the purpose %q; want the purpose %q", p.Rank, p.Pending, p.Purpose, want)
			}
		}
		for _, l := range w.meshes[4].Traffic(w.view) {
			if want := map[int]string{0: "peer", 3: "watch", 5: "watch"}[l.Rank]; l.Purpose != want {
				t.Errorf("the purpose of the link of rank 4 to rank %d is %q, want %q", l.Rank, l.Purpose, want)
			}
		}
		if len(paths) != demandNodes-1 {
			t.Errorf("%d paths, want %d", len(paths), demandNodes-1)
		}
		w.wantWhole()
	})
}

// TestEagerAmongOnDemand: nodes that link themselves to all others do so in a world of nodes that do not, with
// any ranks. Those are linked to each other when they need it.
func TestEagerAmongOnDemand(t *testing.T) {
	for name, isEager := range map[string]func(rank int) bool{
		"the first": func(rank int) bool { return rank == 0 },
		"the last":  func(rank int) bool { return rank == demandNodes-1 },
		"odd":       func(rank int) bool { return rank%2 == 1 },
		"all":       func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, demandNodes, func(w *world) {
				w.watches, w.isEager = 1, isEager
				w.form()
				time.Sleep(interval)
				for a := range demandNodes {
					for b := range demandNodes {
						watch := (a+1)%demandNodes == b || (b+1)%demandNodes == a
						want := a != b && (watch || isEager(a) || isEager(b))
						if got := slices.Contains(w.linked(a), b); got != want {
							t.Errorf("rank %d is linked to rank %d: %v, want %v", a, b, got, want)
						}
					}
				}
				if err := w.exchange(2, 6); err != nil {
					t.Error(err)
				}
				w.wantWhole()
			})
		})
	}
}

// TestOnDemandAtOnce: all nodes send to all others at once. Each pair agrees on one connection, and no
// message is lost, repeated or out of order.
func TestOnDemandAtOnce(t *testing.T) {
	const messages = 5
	onDemand(t, func(w *world) {
		var all sync.WaitGroup
		for from := range demandNodes {
			for to := range demandNodes {
				if from == to {
					continue
				}
				all.Go(func() {
					for i := range byte(messages) {
						if err := sendOn(w.Context(), w.comms[from], []byte{byte(from), i}, 0, to, 0); err != nil {
							t.Errorf("message %d from rank %d to %d: %v", i, from, to, err)
						}
					}
				})
				all.Go(func() {
					for i := range byte(messages) {
						buf := make([]byte, 2)
						if _, err := recvOn(w.Context(), w.comms[to], buf, 0, from, 0); err != nil || buf[0] != byte(from) || buf[1] != i {
							t.Errorf("rank %d received %v, %v, want message %d of rank %d", to, buf, err, i, from)
						}
					}
				})
			}
		}
		all.Wait()
		for rank := range demandNodes {
			if got := w.linked(rank); len(got) != demandNodes-1 {
				t.Errorf("rank %d is linked to %v, want all others", rank, got)
			}
		}
		w.wantWhole()
	})
}

// TestOnDemandUnreachable: a message to a node that cannot be reached ends with an error that names the rank, all
// addresses of the node and the reason, and the seed gets a report about that node alone.
func TestOnDemandUnreachable(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		const other = "another address"
		w.network.Host(other)
		w.view.Nodes[4].Addrs = append(w.view.Nodes[4].Addrs, other)
		w.watches = 1
		w.form()
		w.network.SetLink(w.host(0), w.host(4), sim.Link{Down: true})
		w.network.SetLink(w.host(0), other, sim.Link{Down: true})
		if err := w.exchange(0, 4); err == nil {
			t.Error("the message arrives")
		}
		err := w.comms[0].Err()
		wantPeerError(t, err, 4, false)
		for _, want := range []string{"rank 4 failed: ", "no connection at " + w.host(4) + ", " + other + ": ", "sim: dial ", "context deadline exceeded"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want one with %q", err, want)
			}
		}
		for rank := range demandNodes {
			for _, failed := range w.notes[rank].all() {
				if failed != 4 && failed != 0 {
					t.Errorf("rank %d: rank %d counts as failed", rank, failed)
				}
			}
		}
	})
}

// TestOnDemandFailure: all nodes learn of the end of a node, although most are not linked to it:
// of its process, and of its transport, which may also be the end of a node that has left.
func TestOnDemandFailure(t *testing.T) {
	for how, end := range map[string]func(w *world){
		"the process":   func(w *world) { w.network.Crash(w.host(4)) },
		"the transport": func(w *world) { w.transports[4].Close() },
	} {
		t.Run(how, func(t *testing.T) {
			onDemand(t, func(w *world) {
				end(w)
				for _, rank := range w.ranks(4) {
					buf := make([]byte, 8)
					_, err := recvOn(w.Context(), w.comms[rank], buf, 0, (rank+1)%demandNodes, 0)
					wantPeerError(t, err, 4, false)
					if got := w.notes[rank].all(); !slices.Equal(got, []int{4}) {
						t.Errorf("rank %d: failed nodes %v, want 4", rank, got)
					}
				}
			})
		})
	}
}

// TestOnDemandGone: all nodes learn that a node has left, although it says goodbye to few. Its
// messages arrive, those included that wait for a connection when it leaves.
func TestOnDemandGone(t *testing.T) {
	onDemand(t, func(w *world) {
		if err := sendOn(w.Context(), w.comms[4], []byte("last"), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.meshes[4].Close(ctx)
		buf := make([]byte, 8)
		if got, err := recvOn(ctx, w.comms[0], buf, 0, 4, 0); err != nil || string(buf[:got.Bytes]) != "last" {
			t.Errorf("received %q, %v", buf[:got.Bytes], err)
		}
		for _, rank := range w.ranks(4) {
			_, err := recvOn(ctx, w.comms[rank], buf, 0, 4, 0)
			wantPeerError(t, err, 4, true)
		}
		w.wantNoFailures()
	})
}

// TestOnDemandGoneDuringProposal: a node accepts a proposal, sends a message and leaves. The report that it has left
// arrives before its answer to the proposal, and no message is lost.
func TestOnDemandGoneDuringProposal(t *testing.T) {
	onDemand(t, func(w *world) {
		w.network.SetLink(w.host(0), w.host(4), sim.Link{Delay: 100 * time.Millisecond})
		var both sync.WaitGroup
		both.Go(func() {
			buf := make([]byte, 8)
			if got, err := recvOn(w.Context(), w.comms[0], buf, 0, 4, 0); err != nil || string(buf[:got.Bytes]) != "last" {
				t.Errorf("received %q, %v", buf[:got.Bytes], err)
			}
		})
		both.Go(func() {
			for !slices.Contains(w.linked(4), 0) {
				time.Sleep(time.Millisecond)
			}
			if err := sendOn(w.Context(), w.comms[4], []byte("last"), 0, 0, 0); err != nil {
				t.Error(err)
			}
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			defer cancel()
			w.meshes[4].Close(ctx)
		})
		both.Wait()
		w.wantNoFailures()
	})
}

// TestOnDemandClosedComm: a rank that waits for a message learns that the other rank has closed the
// communicator, although they are not linked.
func TestOnDemandClosedComm(t *testing.T) {
	onDemand(t, func(w *world) {
		w.comms[4].Close()
		_, err := recvOn(w.Context(), w.comms[0], make([]byte, 8), 0, 4, 0)
		wantPeerError(t, err, 4, true)
		w.wantNoFailures()
	})
}

// TestOnDemandRevoke: all ranks learn that a communicator was revoked, although the rank that has
// revoked it is linked to few of them, and without further links.
func TestOnDemandRevoke(t *testing.T) {
	onDemand(t, func(w *world) {
		w.comms[4].Cancel(context.Canceled)
		synctest.Wait()
		time.Sleep(time.Second)
		for _, rank := range w.ranks(4) {
			if w.comms[rank].Err() == nil {
				t.Errorf("rank %d has not learned of the revocation", rank)
			}
			if got := w.linked(rank); len(got) != 2 {
				t.Errorf("rank %d is linked to %v, want 2 ranks", rank, got)
			}
		}
	})
}

// TestOnDemandDeadlock: one rank is told of a deadlock, and repeats it to the ranks that it is linked to,
// so that all learn of it.
func TestOnDemandDeadlock(t *testing.T) {
	onDemand(t, func(w *world) {
		text := wire.WaitsText(1, []wire.Wait{{Rank: 0, Kind: wire.WaitRecv, Peers: []wire.WaitPeer{{Rank: 1}}}})
		w.linkOf(5, 4).Revoke(wire.Revoke{Comm: w.comms[4].ID(), Cause: wire.CauseDeadlock}, text)
		time.Sleep(time.Second)
		for _, rank := range w.ranks() {
			if _, ok := errors.AsType[*engine.DeadlockError](w.comms[rank].Err()); !ok {
				t.Errorf("rank %d: error %v, want a deadlock", rank, w.comms[rank].Err())
			}
		}
	})
}

// TestOnDemandQuiet: closing communicators makes no links until too many frames wait.
func TestOnDemandQuiet(t *testing.T) {
	onDemand(t, func(w *world) {
		const frame = 69 // of wire.TypeClosed
		closeOne := func(i int) {
			for rank, m := range w.meshes {
				m.Engine().NewComm(uint64(100+i), rank, linksOf(t, m, w.view)).Close()
			}
		}
		const most = 4 << 10 / frame
		for i := range most {
			closeOne(i)
		}
		time.Sleep(time.Second)
		if got := w.linked(0); len(got) != 2 {
			t.Errorf("after %d closed communicators, rank 0 is linked to %v, want 2 ranks", most, got)
		}
		closeOne(most)
		time.Sleep(time.Second)
		if got := w.linked(0); len(got) != demandNodes-1 {
			t.Errorf("after %d closed communicators, rank 0 is linked to %v, want all", most+1, got)
		}
		w.wantWhole()
	})
}

// TestGoneOfLinked: a report that a linked node has left is ignored: its goodbye decides.
func TestGoneOfLinked(t *testing.T) {
	onDemand(t, func(w *world) {
		w.linkOf(2, 1).Gone(wire.Gone{Node: idOf(0)})
		time.Sleep(time.Second)
		w.wantWhole()
	})
}

// TestLinkHostOfOthers: LinkHost makes no links to nodes on other hosts.
func TestLinkHostOfOthers(t *testing.T) {
	onDemand(t, func(w *world) {
		if err := (&Group{Nodes: w.view.Nodes, mesh: w.meshes[0]}).LinkHost(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := w.linked(0); len(got) != 2 {
			t.Errorf("rank 0 is linked to %v, want 2 ranks", got)
		}
	})
}

// TestPendingMemory: an unlinked peer takes little memory.
func TestPendingMemory(t *testing.T) {
	const links, most = 1000, 256
	var before, after runtime.MemStats
	common := link.NewCommon(nil, link.Config{Log: slog.New(slog.DiscardHandler), IdleTimer: new(link.IdleTimer)}, nil)
	keep, closed := make([]*link.Link, 0, links), (&wire.Closed{Last: wire.Call{Comm: 1, Seq: 1}}).Append(nil)
	runtime.ReadMemStats(&before)
	for peer := range links {
		l := common.NewPending(peer)
		l.Closed(closed) // A node has told all others of an internal communicator.
		keep = append(keep, l)
	}
	runtime.ReadMemStats(&after)
	got := (after.TotalAlloc - before.TotalAlloc) / links
	t.Logf("%d bytes for a pending link", got)
	if got > most {
		t.Errorf("a pending link takes %d bytes, want at most %d", got, most)
	}
	runtime.KeepAlive(keep)
}

// TestDialOfRemovedNode: a node that is no longer in the view of another one, and has no link to it, dials it. The
// connection is refused, and the other node goes on.
func TestDialOfRemovedNode(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.watches = 1
		w.form()
		w.reduceIn(2, membership.View{Epoch: 2, Nodes: w.view.Nodes[:2]}, 0, 1)
		time.Sleep(time.Second)
		if l := w.linkOf(0, 2); l != nil {
			t.Fatal("rank 0 has a link to the removed node: the test shows nothing")
		}
		c, err := w.transports[2].Dial(w.Context(), w.host(0), w.host(0))
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.Done():
		case <-time.After(time.Second):
			t.Error("rank 0 accepts a connection of a removed node")
		}
		for rank, err := range w.reduceIn(3, membership.View{Epoch: 3, Nodes: w.view.Nodes[:2]}, 0, 1) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestOnDemandDialerLeaves: a node leaves between the acceptance of its proposal by a peer and the arrival of that answer,
// over a path that does not tell whether its process has ended, such as shared memory. Its peer does not count it as failed, with
// the larger or the smaller NodeID, and also if the peer has made a proposal at the same time.
func TestOnDemandDialerLeaves(t *testing.T) {
	const slow = 100 * time.Millisecond
	for name, test := range map[string]struct {
		dialer, peer int
		both         bool
	}{
		"the smaller dials":                {dialer: 0, peer: 4},
		"the larger dials":                 {dialer: 4, peer: 0},
		"both dial, and the larger leaves": {dialer: 4, peer: 0, both: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, demandNodes, func(w *world) {
				w.watches = 1
				w.paths = func(rank int) []Path { return []Path{{Transport: w.transports[rank]}} }
				w.form()
				w.network.SetLink(w.host(test.dialer), w.host(test.peer), sim.Link{Delay: slow})
				w.linkOf(test.dialer, test.peer).Need(link.Waiting)
				if test.both {
					w.linkOf(test.peer, test.dialer).Need(link.Waiting)
				}
				accepts := func() bool {
					m := w.meshes[test.peer]
					m.mu.Lock()
					defer m.mu.Unlock()
					r := m.peers[test.dialer].proposal
					return r != nil && r.peer == idOf(test.dialer) || m.peers[test.dialer].isLinked()
				}
				for !accepts() {
					time.Sleep(time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				w.meshes[test.dialer].Close(ctx)
				time.Sleep(time.Minute)
				for _, rank := range w.ranks(test.dialer) {
					if got := w.notes[rank].all(); len(got) > 0 {
						t.Errorf("rank %d: failed nodes %v, want none", rank, got)
					}
				}
				if err := w.exchange(test.peer, 2); err != nil {
					t.Errorf("after the departure: %v", err)
				}
			})
		})
	}
}
