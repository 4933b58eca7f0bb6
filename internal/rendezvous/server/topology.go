package server

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
)

// topology returns the topology of the world: that of its first view or, while the world forms, of the
// nodes that have joined. known is false if none has.
func (s *Server) topology() (t topology.Topology, known bool) {
	if r := &s.state.cluster; r.Begun {
		t, err := topology.Parse(r.Topology)
		if err != nil { // Seeds write only names that they have parsed.
			panic("seed: topology in the state of the cluster: " + err.Error())
		}
		return t, true
	}
	for _, c := range s.state.leader.nodes {
		return c.topology, true // All have the same.
	}
	return t, false
}

// hasTopology reports whether a node with a topology may join.
func (s *Server) hasTopology(t topology.Topology) bool {
	world, known := s.topology()
	return !known || t == world
}

// otherTopology returns the refusal of a node with another topology than the world.
func (s *Server) otherTopology(t topology.Topology) error {
	world, _ := s.topology()
	return fmt.Errorf("%w: this node has %q, the world %q: set NEXAR_TOPOLOGY to the same value on all nodes",
		handshake.ErrTopology, t, world)
}
