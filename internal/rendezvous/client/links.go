package client

import (
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// Link says whether this node has a link to another that it expects, or that joins beside
// it. The seed lets a node in only if others confirm its links. It does not wait.
func (s *Session) Link(peer membership.NodeID, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, in := s.view.Rank(peer); in {
		return
	}
	if up {
		s.links[peer] = true
	} else {
		delete(s.links, peer)
	}
	s.out.Post(handshake.Frame(wire.JoinLink{Peer: peer, Up: up}))
}

// sayLinks repeats on another conn which links to nodes that join stand. The lock is held.
func (s *Session) sayLinks() {
	for peer := range s.links {
		s.out.Post(handshake.Frame(wire.JoinLink{Peer: peer, Up: true}))
	}
}

// setExpected tells the node which others it has to expect: some more, or all of them.
func (s *Session) setExpected(nodes []membership.Node, whole bool) {
	s.mu.Lock()
	var gone []membership.NodeID
	for id := range s.expected {
		if _, still := (membership.View{Nodes: nodes}).Rank(id); whole && !still {
			gone = append(gone, id)
		}
	}
	for _, n := range nodes {
		s.expected[n.ID] = true
	}
	s.mu.Unlock()
	if s.expect != nil && len(nodes) > 0 {
		s.expect(nodes)
	}
	for _, id := range gone {
		s.setForgotten(id)
	}
}

// setForgotten tells the node that one that it expects does not join.
func (s *Session) setForgotten(id membership.NodeID) {
	s.mu.Lock()
	_, in := s.view.Rank(id)
	delete(s.expected, id)
	delete(s.links, id)
	s.mu.Unlock()
	if s.forget != nil && !in {
		s.forget(id)
	}
}

// setEntered notes that nodes are in a view, which were expected. The lock is held.
func (s *Session) setEntered(v membership.View) {
	for _, n := range v.Nodes {
		delete(s.expected, n.ID)
		delete(s.links, n.ID)
	}
}
