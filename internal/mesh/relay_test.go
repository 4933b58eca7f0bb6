package mesh

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport/sim"
)

// relayed calls f with a world of n nodes of a topology, each with a relay.
func relayed(t *testing.T, name string, n int, f func(w *world)) {
	t.Helper()
	sparse(t, name, n, func(w *world) {
		w.addRelays(n, nil)
		f(w)
	})
}

// addRelays gives n nodes relays. tamper, if not nil, returns the actions of the hostile ones among them.
func (w *world) addRelays(n int, tamper func(rank int) Tamper) {
	w.Helper()
	w.ca = testpeer.NewCA(w)
	for rank := range n {
		var t Tamper
		if tamper != nil {
			t = tamper(rank)
		}
		w.addRelay(rank, t)
	}
}

// addRelay gives a node a relay.
func (w *world) addRelay(rank int, t Tamper) {
	w.Helper()
	creds := w.ca.Node(w, w.host(rank))
	r, err := NewRelay(RelayConfig{Self: idOf(rank), Server: creds.Server(), Client: creds.Client, Peer: creds.Peer, Tamper: t})
	if err != nil {
		w.Fatal(err)
	}
	w.relays = append(w.relays, r)
}

// wantNeighborsOnly checks that each node has direct connections to its neighbors and no others.
func (w *world) wantNeighborsOnly() {
	w.Helper()
	for rank, m := range w.meshes {
		var direct []int
		m.mu.Lock()
		for slot := range m.peers {
			if p := &m.peers[slot]; slot != rank && p.isLinked() && !p.isRelayed() {
				direct = append(direct, slot)
			}
		}
		m.mu.Unlock()
		if want := w.neighbors(len(w.meshes), rank); !slices.Equal(direct, want) {
			w.Errorf("rank %d has connections to %v, want %v", rank, direct, want)
		}
	}
}

// TestRelayedMessages: ranks that are not neighbors exchange messages through relays, in both directions, and no node
// gets a connection to another one that is not its neighbor.
func TestRelayedMessages(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			relayed(t, name, 6, func(w *world) {
				w.form()
				for from := range 6 {
					for to := range 6 {
						if from == to {
							continue
						}
						if err := w.exchange(from, to); err != nil {
							t.Errorf("message from rank %d to rank %d: %v", from, to, err)
						}
					}
				}
				w.wantWhole()
				w.wantNeighborsOnly()
				start := time.Now()
				w.end()
				if took := time.Since(start); took > time.Second/2 {
					t.Errorf("the nodes have left after %v", took)
				}
			})
		})
	}
}

// TestRelayNewNeighbors: nodes that have reached each other through relays become neighbors in the next view. They get
// connections of their own, and no frame is lost. If their relays have died, the connection is replaced as well.
func TestRelayNewNeighbors(t *testing.T) {
	for name, dead := range map[string][]int{"a death": {4}, "two deaths that cut the ring": {1, 4}} {
		t.Run(name, func(t *testing.T) {
			relayed(t, "k-regular:2", 8, func(w *world) {
				w.form()
				for from := range 8 {
					for to := range 8 {
						if err := w.exchange(from, to); from != to && err != nil {
							t.Errorf("message from rank %d to rank %d: %v", from, to, err)
						}
					}
				}
				for _, rank := range dead {
					w.network.PowerOff(w.host(rank))
				}
				time.Sleep(timeout + 3*interval)
				rest := membership.View{Epoch: 2}
				for _, rank := range w.ranks(dead...) {
					rest.Nodes = append(rest.Nodes, w.view.Nodes[rank])
				}
				for _, rank := range w.ranks(dead...) {
					w.adopt(w.meshes[rank], rest)
				}
				time.Sleep(timeout)
				for rank, slot := range w.ranks(dead...) {
					var want, got []int
					for _, r := range w.neighbors(rest.Size(), rank) {
						want = append(want, w.ranks(dead...)[r])
					}
					for other := range 8 {
						if other != slot && !slices.Contains(dead, other) && w.isDirect(slot, other) {
							got = append(got, other)
						}
					}
					for _, other := range want {
						if !slices.Contains(got, other) {
							t.Errorf("rank %d has connections to %v, want all of %v", slot, got, want)
						}
					}
				}
				for rank, err := range w.reduceIn(2, rest, w.ranks(dead...)...) {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
			})
		})
	}
}

// isDirect reports whether a node has a connection to another one that does not go through relays.
func (w *world) isDirect(rank, to int) bool {
	m := w.meshes[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[to]
	return p.isLinked() && p.route != nil && !p.isRelayed()
}

// TestLostFramesAreSentAgain: a relay loses a frame, and its link to the source breaks. The mesh tells the relay that the routes have
// changed, so that the frame takes the other way before its timeout, 200 ms or more.
func TestLostFramesAreSentAgain(t *testing.T) {
	sparse(t, "k-regular:2", 6, func(w *world) {
		var drops atomic.Bool
		var dropped atomic.Int32
		w.addRelays(6, func(rank int) Tamper {
			return func(_ membership.NodeID, f forward.Frame) []forward.Frame {
				if rank == 1 && drops.Load() {
					dropped.Add(1)
					return nil
				}
				return []forward.Frame{f}
			}
		})
		w.form()
		for range 5 { // The round trip becomes known.
			if err := w.exchange(0, 2); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		drops.Store(true)
		start := time.Now()
		done := make(chan error, 1)
		go func() { done <- w.exchange(0, 2) }()
		time.Sleep(2 * delay)
		if dropped.Load() == 0 {
			t.Error("the relay has dropped no frame")
		}
		w.network.Cut(w.host(0), w.host(1))
		w.network.SetLink(w.host(0), w.host(1), sim.Link{Down: true})
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("the message has arrived after %v, want at most 150 ms", took)
		}
	})
}

// TestRelayViolatesProtocol: a hostile relay passes a frame on as if it had made no hop. Its neighbor ends the link, by an error that
// names the relay and the reason, and tells the seed. Other links stay, and the frame takes another path.
func TestRelayViolatesProtocol(t *testing.T) {
	sparse(t, "k-regular:2", 6, func(w *world) {
		var hostile atomic.Bool
		w.addRelays(6, func(rank int) Tamper {
			return func(_ membership.NodeID, f forward.Frame) []forward.Frame {
				if rank == 1 && hostile.Load() {
					f.Hops = 0
				}
				return []forward.Frame{f}
			}
		})
		var mu sync.Mutex
		reasons := make(map[membership.NodeID]error)
		w.lost = func(id membership.NodeID, err error) {
			mu.Lock()
			defer mu.Unlock()
			reasons[id] = err
		}
		w.form()
		w.lost = nil
		if err := w.exchange(0, 2); err != nil {
			t.Fatal(err)
		}
		hostile.Store(true)
		var exchange sync.WaitGroup
		exchange.Go(func() { _ = w.exchange(0, 2) }) // ends with the communicator
		time.Sleep(time.Second)
		exchange.Wait()
		for _, want := range []string{"rank 1 (node " + idOf(1).String() + "): protocol error: ", "after 0 hops"} {
			if err := w.linkOf(2, 1).Err(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the link to the hostile relay has ended with %v, want %q", err, want)
			}
		}
		if l := w.linkOf(2, 3); l.Err() != nil {
			t.Errorf("the link to another neighbor has ended with %v", l.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		if err := reasons[idOf(1)]; err == nil || !strings.Contains(err.Error(), "protocol error") {
			t.Errorf("the seed gets the reason %v", err)
		}
	})
}

// TestWithoutRelay: a node of the full topology has no counters of relayed frames.
func TestWithoutRelay(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		if r := w.meshes[0].Relayed(); r != nil {
			t.Errorf("counters %+v, want none", r)
		}
	})
}

// TestDialOverRelaysGivesWay: all relays to a node die while it is dialed over them. In the next view it is a neighbor: it is dialed
// without relays at once, and not when the dial over relays has timed out.
func TestDialOverRelaysGivesWay(t *testing.T) {
	relayed(t, "k-regular:2", 8, func(w *world) {
		w.form()
		dead := []int{1, 7} // the neighbors of rank 0
		for _, rank := range dead {
			w.network.PowerOff(w.host(rank))
		}
		var dial sync.WaitGroup
		dial.Go(func() { _ = w.exchange(0, 2) }) // fails with the dead nodes
		time.Sleep(timeout + 3*interval)
		dial.Wait()
		if l := w.linkOf(0, 2); !l.IsPending() {
			t.Fatal("rank 0 has a connection to rank 2 without relays to it")
		}
		rest := membership.View{Epoch: 2}
		for _, rank := range w.ranks(dead...) {
			rest.Nodes = append(rest.Nodes, w.view.Nodes[rank])
		}
		for _, rank := range w.ranks(dead...) {
			w.adopt(w.meshes[rank], rest)
		}
		began := time.Now()
		for rank, err := range w.reduceIn(2, rest, w.ranks(dead...)...) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the next view works after %v, want at most %v", took, 2*time.Second)
		}
		if !w.isDirect(0, 2) {
			t.Error("rank 0 has no connection to rank 2")
		}
	})
}
