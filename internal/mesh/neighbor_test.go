package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/transport"
)

// sparse calls f with a world of n nodes of a topology.
func sparse(t *testing.T, name string, n int, f func(w *world)) {
	t.Helper()
	links := parse(t, name)
	inBubble(t, n, func(w *world) {
		w.topology = links
		f(w)
	})
}

// parse returns the topology with a name.
func parse(t *testing.T, name string) topology.Topology {
	t.Helper()
	links, err := topology.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return links
}

// neighbors returns the neighbors of a rank in a world of n nodes, in ascending order.
func (w *world) neighbors(n, rank int) []int {
	return slices.Sorted(slices.Values(w.topology.Graph(n).Neighbors(rank)))
}

// TestSparseForm: a world forms with links between neighbors alone. An all-reduce in a ring needs no others, and
// there are no others after an hour of heartbeats.
func TestSparseForm(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, name := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "k-regular:20", "hypercube"} {
		for _, n := range []int{2, 8, 9} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				sparse(t, name, n, func(w *world) {
					w.form()
					if name != "hypercube" { // It has no ring of the ranks in their order.
						w.wantWhole()
					}
					time.Sleep(time.Hour)
					for rank := range n {
						want := w.neighbors(n, rank)
						if got := w.linked(rank); !slices.Equal(got, want) {
							t.Errorf("rank %d is linked to %v, want %v", rank, got, want)
						}
						if note := w.topology.Note(n); slices.ContainsFunc(w.notes[rank].warned, func(s string) bool { return strings.Contains(s, "does not fit") }) != (note != "") {
							t.Errorf("rank %d has logged %q, want %q", rank, w.notes[rank].warned, note)
						}
						if got := (&Group{Nodes: w.view.Nodes, mesh: w.meshes[rank]}).Neighbors(); !slices.Equal(got, want) {
							t.Errorf("rank %d has the neighbors %v, want %v", rank, got, want)
						}
					}
					w.wantNoFailures()
				})
			})
		}
	}
}

// TestSparsePaths: the paths to all ranks say how many hops they have.
func TestSparsePaths(t *testing.T) {
	sparse(t, "k-regular:2", 6, func(w *world) {
		w.form()
		var got []string
		for _, p := range w.meshes[0].Paths(w.view) {
			got = append(got, fmt.Sprintf("%d: %d, %v, %s", p.Rank, p.Hops, p.Pending, p.Reason))
		}
		want := []string{
			"1: 1, false, chosen by the node that dialed",
			"2: 2, true, not a neighbor: 2 hops, the first to rank 1",
			"3: 3, true, not a neighbor: 3 hops, the first to rank 1",
			"4: 2, true, not a neighbor: 2 hops, the first to rank 5",
			"5: 1, false, chosen by the node that dialed",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got paths\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestSparseWithoutRelay: a message to a node that is not a neighbor, and without a relay, ends with an error that names
// the rank, the node and the topology, on both ranks. No node counts as failed, and the next view works.
func TestSparseWithoutRelay(t *testing.T) {
	sparse(t, "k-regular:2", 8, func(w *world) {
		w.lost = func(id membership.NodeID, err error) { t.Errorf("node %v is reported lost: %v", id, err) }
		w.form()
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		buf := make([]byte, 8)
		for i, err := range []error{
			sendOn(ctx, w.comms[0], make([]byte, 1<<20), 0, 4, 0), // More than the credit: it waits.
			func() error { _, err := recvOn(ctx, w.comms[5], buf, 0, 1, 0); return err }(),
		} {
			peer := []int{4, 1}[i]
			wantPeerError(t, err, peer, false)
			if e, ok := errors.AsType[*NotNeighborError](err); !ok || e.Rank != peer || e.Node != idOf(peer) || !strings.Contains(e.Error(), "topology k-regular:2") {
				t.Errorf("got error %v, want a NotNeighborError of rank %d", err, peer)
			}
		}
		w.wantNoFailures()
		for rank, err := range w.reduceIn(2, membership.View{Epoch: 2, Nodes: w.view.Nodes}, w.ranks()...) {
			if err != nil {
				t.Errorf("in the next view, rank %d: %v", rank, err)
			}
		}
		if err := sendOn(ctx, w.meshes[0].Engine().NewComm(3, 0, linksOf(t, w.meshes[0], w.view)), make([]byte, 1<<20), 0, 4, 0); !isNotNeighbor(err) {
			t.Errorf("in the next view, a message ends with %v, want a NotNeighborError", err)
		}
	})
}

// A side is a transport beside named on the same simulated hosts.
type side struct{ transport.Transport }

const sidePort = ":7001"

func (s side) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := s.Transport.Dial(ctx, addr+sidePort, peer+sidePort)
	if err != nil {
		return nil, err
	}
	return sideConn{c}, nil
}

func (s side) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := s.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return sideConn{c}, nil
}

type sideConn struct{ transport.Conn }

func (c sideConn) Peer() string { return strings.TrimSuffix(c.Conn.Peer(), sidePort) }

// TestSparseRelayPath: links to nodes that are not neighbors are made on demand over the path for relays, and links to
// neighbors never.
func TestSparseRelayPath(t *testing.T) {
	sparse(t, "k-regular:4", 12, func(w *world) {
		w.paths = func(rank int) []Path {
			s, err := w.network.Host(w.host(rank)).Listen(7001)
			if err != nil {
				t.Fatal(err)
			}
			return []Path{{Transport: side{s}, Name: "relay", Relay: true}, {Transport: w.transports[rank]}}
		}
		w.form()
		for to := 1; to < 12; to++ {
			if err := w.exchange(0, to); err != nil {
				t.Errorf("message to rank %d: %v", to, err)
			}
		}
		near := w.neighbors(12, 0)
		for _, p := range w.meshes[0].Paths(w.view) {
			isRelayed := !slices.Contains(near, p.Rank)
			if (p.Transport == "relay") != isRelayed || (p.Hops > 1) != isRelayed || p.Pending {
				t.Errorf("the path to rank %d is %+v, relayed: want %v", p.Rank, p, isRelayed)
			}
		}
		w.wantWhole()
	})
}

// TestSparseUnexpectedPeer: a connection of a node of the view that is not a neighbor is refused.
func TestSparseUnexpectedPeer(t *testing.T) {
	sparse(t, "k-regular:2", 8, func(w *world) {
		w.form()
		for _, to := range []int{3, 4, 5} {
			c, err := w.transports[0].Dial(w.Context(), w.host(to), w.host(to))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Done():
			case <-time.After(time.Second):
				t.Errorf("rank %d accepts a connection of rank 0", to)
			}
		}
		w.wantWhole()
	})
}

// TestSparseFailure: the neighbors of a node notice its failure, and all others learn of it. In the next view the
// nodes have other neighbors, and link themselves to these.
func TestSparseFailure(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			sparse(t, name, 9, func(w *world) {
				w.form()
				w.network.PowerOff(w.host(4))
				time.Sleep(timeout + 3*interval)
				for _, rank := range w.ranks(4) {
					if got := w.notes[rank].all(); !slices.Equal(got, []int{4}) {
						t.Errorf("rank %d: failed nodes %v, want 4", rank, got)
					}
					wantPeerError(t, w.comms[rank].Err(), 4, false)
				}
				rest := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(w.view.Nodes), 4, 5)}
				for _, slot := range w.ranks(4) {
					w.adopt(w.meshes[slot], rest)
				}
				time.Sleep(2 * interval) // Watches need links.
				for rank, slot := range w.ranks(4) {
					linked := w.linked(slot)
					for _, other := range w.neighbors(8, rank) {
						if !slices.Contains(linked, w.ranks(4)[other]) {
							t.Errorf("rank %d is linked to %v, not to its neighbor %d", rank, linked, other)
						}
					}
				}
				if name == "hypercube" {
					return
				}
				for rank, err := range w.reduceIn(2, rest, w.ranks(4)...) {
					if err != nil {
						t.Errorf("after the failure, rank %d: %v", rank, err)
					}
				}
			})
		})
	}
}

// TestSparseNeighborsFail: all neighbors of a node fail at once. The next view, which comes from the seed, links it to
// others.
func TestSparseNeighborsFail(t *testing.T) {
	sparse(t, "k-regular:2", 8, func(w *world) {
		w.form()
		w.network.PowerOff(w.host(3))
		w.network.PowerOff(w.host(5))
		time.Sleep(timeout + 3*interval)
		rest := membership.View{Epoch: 2}
		for _, rank := range w.ranks(3, 5) {
			rest.Nodes = append(rest.Nodes, w.view.Nodes[rank])
		}
		for rank, err := range w.reduceIn(2, rest, w.ranks(3, 5)...) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestSparseGrow: nodes join one after the other and link themselves to their neighbors only. In the next view all
// neighbors are linked.
func TestSparseGrow(t *testing.T) {
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			sparse(t, name, 7, func(w *world) {
				w.form()
				for n := 8; n <= 10; n++ {
					all := w.newcomers(1)
					if got, want := w.linked(n-1), w.neighbors(n, n-1); !slices.Equal(got, want) {
						t.Errorf("newcomer %d is linked to %v, want %v", n-1, got, want)
					}
					all.Epoch = uint64(n)
					for _, m := range w.meshes {
						w.adopt(m, all)
					}
					w.view = all
					time.Sleep(2 * interval)
					for rank := range n {
						want, linked := w.neighbors(n, rank), w.linked(rank)
						if got := (&Group{Nodes: all.Nodes, mesh: w.meshes[rank]}).Neighbors(); !slices.Equal(got, want) {
							t.Errorf("rank %d of %d has the neighbors %v, want %v", rank, n, got, want)
						}
						for _, other := range want {
							if !slices.Contains(linked, other) {
								t.Errorf("rank %d of %d is linked to %v, not to its neighbor %d", rank, n, linked, other)
							}
						}
					}
				}
				if name == "hypercube" {
					return
				}
				for rank, err := range w.reduceIn(2, w.view, w.ranks()...) {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				w.wantNoFailures()
			})
		})
	}
}

// TestSparseGrowTogether: two nodes that are neighbors of each other join, and enter the world with one view.
func TestSparseGrowTogether(t *testing.T) {
	sparse(t, "k-regular:2", 8, func(w *world) {
		w.form()
		all := w.newcomers(2)
		if got, want := w.linked(9), []int{0, 7, 8}; !slices.Equal(got, want) { // Alone it would be beside rank 7.
			t.Errorf("the second newcomer is linked to %v, want %v", got, want)
		}
		all.Epoch = 2
		for rank, err := range w.reduceIn(2, all, w.ranks()...) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		w.wantNoFailures()
	})
}
