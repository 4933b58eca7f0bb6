package mesh

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/testpeer"
)

// relayed calls f with a world of n nodes of a topology, each with a relay.
func relayed(t *testing.T, name string, n int, f func(w *world)) {
	t.Helper()
	sparse(t, name, n, func(w *world) {
		ca := testpeer.NewCA(t)
		for rank := range n {
			w.addRelay(ca, rank)
		}
		f(w)
	})
}

// addRelay gives a node a relay.
func (w *world) addRelay(ca *testpeer.CA, rank int) {
	w.Helper()
	creds := ca.Node(w, w.host(rank))
	r, err := NewRelay(RelayConfig{Self: idOf(rank), Server: creds.Server(), Client: creds.Client, Peer: creds.Peer})
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
