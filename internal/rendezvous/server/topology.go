package server

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
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

// tooLarge returns the refusal of a node if the world would have too many nodes for its topology, so that relays would not reach
// from each to all others: with the initial size or, if joins tells that the node joins a world that has its nodes, with
// this node and those that wait.
func (s *Server) tooLarge(t topology.Topology, joins bool) error {
	size := s.cfg.World
	if r := &s.state.cluster; joins {
		if r.Formed {
			size = r.view.Size()
		}
		size += s.state.leader.pending.Growing() + 1
		if s.cfg.Max > 0 {
			size = min(size, s.cfg.Max)
		}
	}
	if err := t.CheckDistance(size); err != nil {
		return handshake.Refuse(wire.RefusedTopology, "topology %v: %w", t, err)
	}
	return nil
}

// warnOfDistance warns if the newest view has nodes that relays do not connect. Nodes that leave a world of some thousand nodes can
// cause that, since a smaller graph may have longer paths.
func (s *Server) warnOfDistance() {
	view := s.state.cluster.view
	if t, known := s.topology(); known {
		if err := t.CheckDistance(view.Size()); err != nil {
			s.log.Warn("relays do not connect all nodes of the world", "epoch", view.Epoch, "topology", t, "reason", err)
		}
	}
}

// otherTopology returns the refusal of a node with another topology than the world.
func (s *Server) otherTopology(t topology.Topology) error {
	world, _ := s.topology()
	return fmt.Errorf("%w: this node has %q, the world %q: set NEXAR_TOPOLOGY to the same value on all nodes",
		handshake.ErrTopology, t, world)
}
