package server

import (
	"errors"
	"strings"
	"testing"

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
