package mesh

import (
	"slices"
	"testing"
	"time"

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
