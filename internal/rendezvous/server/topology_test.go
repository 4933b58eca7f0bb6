package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
)

// in returns the request of the i-th node with a topology.
func (s *testSeed) in(t testing.TB, i int, name string) client.Request {
	t.Helper()
	links, err := topology.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	req := s.request(i)
	req.Topology = links
	return req
}

// wantOtherTopology checks that a node is refused since it has one topology and the world another one.
func (s *testSeed) wantOtherTopology(t testing.TB, i int, name, world string) {
	t.Helper()
	_, err := s.join(t, s.in(t, i, name))
	if !errors.Is(err, handshake.ErrTopology) || !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), `"`+world+`"`) {
		t.Errorf("a node with %s joins a world with %s: %v", name, world, err)
	}
}

// TestOtherTopology: a node with another topology than those that have joined is refused at once, while the world
// forms and after that, and also by a trial. When the others have gone, it may join.
func TestOtherTopology(t *testing.T) {
	s := newSeed(t, 2, func(cfg *Config) { cfg.Elastic = true })
	first, err := s.join(t, s.in(t, 0, "hypercube"))
	if err != nil {
		t.Fatal(err)
	}
	s.wantOtherTopology(t, 1, "full", "hypercube")
	s.wantOtherTopology(t, 1, "k-regular:4", "hypercube")
	first.Close()
	s.log.wait(t, "node left")
	sessions := make([]*client.Session, 2)
	for i := range sessions {
		if sessions[i], err = s.join(t, s.in(t, 2+i, "k-regular:4")); err != nil {
			t.Fatal(err)
		}
	}
	for i, session := range sessions {
		if _, _, err := session.Begin(t.Context(), 0); err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
		s.wantOtherTopology(t, 4, "full", "k-regular:4")
	}
	trial := s.in(t, 5, "hypercube")
	trial.Trial = true
	if _, err := s.join(t, trial); err == nil {
		t.Error("a trial with another topology passes")
	}
	s.read(func() {
		if got := s.state.cluster.Topology; got != "k-regular:4" {
			t.Errorf("the state of the cluster has the topology %q", got)
		}
	})
}

// TestTopologyInState: the topology is kept in the state of the cluster as long as the world lasts, so that a seed that
// begins to lead knows it.
func TestTopologyInState(t *testing.T) {
	var r clusterState
	if err := r.apply(change{Kind: changeView, Entries: []membership.Entry{{Kind: membership.Form, Nodes: []membership.Node{
		{ID: membership.NodeID{1}, Addrs: []string{"a:1"}}, {ID: membership.NodeID{2}, Addrs: []string{"b:1"}},
	}}}, Topology: "hypercube"}); err != nil {
		t.Fatal(err)
	}
	leave := change{Kind: changeView, Entries: []membership.Entry{{Kind: membership.Leave, IDs: []membership.NodeID{{2}}}}}
	if err := r.apply(leave); err != nil {
		t.Fatal(err)
	}
	b, err := r.marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseClusterState(b)
	if err != nil || again.Topology != "hypercube" {
		t.Errorf("topology %q, %v, want hypercube", again.Topology, err)
	}
	if err := again.apply(change{Kind: changeAnew}); err != nil || again.Topology != "" {
		t.Errorf("another world has the topology %q, %v", again.Topology, err)
	}
}

// wantTooLarge checks that a node is refused since the world would have too many nodes for its topology, with the topology, the number
// of nodes and the limit.
func wantTooLarge(t testing.TB, err error, topology string, size int) {
	t.Helper()
	want := fmt.Sprintf("topology %s: some of %d ranks are 65 links apart: must be at most 64", topology, size)
	if !errors.Is(err, handshake.ErrTopology) || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want a refusal with %q", err, want)
	}
}

// TestTooManyNodes: the first node of a world with too many nodes for its topology is refused at once.
func TestTooManyNodes(t *testing.T) {
	s := newSeed(t, 130, nil)
	_, err := s.join(t, s.in(t, 0, "k-regular:2"))
	wantTooLarge(t, err, "k-regular:2", 130)
	if !strings.Contains(s.log.String(), "65 links apart") {
		t.Errorf("the seed has not logged the refusal: %s", s.log.String())
	}
	if _, err := s.join(t, s.in(t, 1, "k-regular:4")); err != nil {
		t.Error(err)
	}
	s = newSeed(t, 129, nil)
	if _, err := s.join(t, s.in(t, 0, "k-regular:2")); err != nil {
		t.Error(err)
	}
}

// TestWorldOutgrowsTopology: a ring grows to 129 nodes. A node that would be the 130th, with those that wait, is refused at once. When a
// node leaves, another one may join.
func TestWorldOutgrowsTopology(t *testing.T) {
	ring, err := topology.Parse("k-regular:2")
	if err != nil {
		t.Fatal(err)
	}
	inViewWorldWith(t, ring, 128, func(w *viewWorld) {
		refused := func() {
			t.Helper()
			_, err := w.join(w.t, w.in(w.t, 200, "k-regular:2"))
			wantTooLarge(w.t, err, "k-regular:2", 130)
		}
		waiting := w.joinNode(128)
		refused()
		waiting.Close()
		w.links.end(waiting.ID)
		synctest.Wait()
		w.grow()
		refused()
		if got := w.sessions[0].Newest().Size(); got != 129 {
			w.t.Errorf("the world has %d nodes, want 129", got)
		}
		w.leave(5)
		w.grow()
	})
}

// TestNodeWithoutNeighborsDies: a node of a sparse world dies together with all its neighbors. No other node watches it, so none reports
// it: the seed notices the end of its session, and removes it.
func TestNodeWithoutNeighborsDies(t *testing.T) {
	const n, victim = 16, 8
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			links, err := topology.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			inViewWorldWith(t, links, n, func(w *viewWorld) {
				dead := append(links.Graph(n).Neighbors(victim), victim)
				slices.Sort(dead)
				slices.Reverse(dead)
				w.die(time.Minute, dead...)
				for v := w.sessions[0].Newest(); v.Size() > len(w.sessions); { // The neighbors may be removed first.
					v = w.await(v.Epoch, time.Minute)
				}
				v := w.sessions[0].Newest()
				if v.Size() != n-len(dead) {
					w.t.Errorf("view %d has %d nodes, want %d", v.Epoch, v.Size(), n-len(dead))
				}
				for rank, s := range w.sessions {
					if got, in := v.Rank(s.ID); !in || got != rank {
						w.t.Errorf("a living node has rank %d, in the view: %t; want rank %d", got, in, rank)
					}
				}
			})
		})
	}
}
