package server

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// distribute sends a view to its nodes: the whole view to nodes that have entered, and the
// difference from the view before to the roots of the tree, which forward it to the others.
func (s *Server) distribute(before, view membership.View) {
	l := s.state.leader
	l.spread, l.spreadFrame = nil, nil
	l.spreading.stop()
	d, frame, err := s.difference(before, view)
	if err != nil {
		s.log.Warn("the view is sent whole to all nodes", "epoch", view.Epoch, "reason", err)
	}
	whole, err2 := wire.AppendJoin(nil, wire.JoinView(view))
	if err2 != nil {
		s.log.Error("view cannot be sent", "epoch", view.Epoch, "err", err2)
		return
	}
	for _, n := range view.Nodes {
		if _, was := before.Rank(n.ID); !was || err != nil {
			s.sendFrame(n.ID, whole)
		}
	}
	if err != nil {
		return
	}
	var roots []membership.NodeID
	links, _ := s.topology()
	l.spread, roots = membership.NewViewSpread(time.Now(), links, before, &d)
	l.spreadFrame = frame
	s.sendDifference(roots)
	for _, id := range roots {
		if l.nodes[id] == nil {
			s.reachNot(id)
		}
	}
	if at, ok := l.spread.Deadline(); ok {
		l.spreading = s.afterAsLeader(time.Until(at), func() {
			if late := l.spread.Tick(time.Now()); len(late) > 0 {
				s.log.Debug("the view is sent to nodes in subtrees that have not confirmed it", "epoch", view.Epoch, "nodes", len(late))
				s.sendDifference(late)
			}
		})
	}
}

// difference returns the signed difference between two views, and its encoding. An error says why
// the view must be sent whole.
func (s *Server) difference(before, view membership.View) (d membership.Difference, frame []byte, err error) {
	d, ok := membership.Diff(before, view)
	if !ok {
		return d, nil, fmt.Errorf("its nodes have another order than in view %d", before.Epoch)
	}
	if d.Signature, err = s.state.cluster.authority.SignView(d.Epoch, d.Hash); err != nil {
		return d, nil, fmt.Errorf("it cannot be signed: %w", err)
	}
	frame, err = wire.AppendJoin(nil, wire.JoinDifference(d))
	if err == nil && len(frame) > wire.ViewMessageMax {
		err = fmt.Errorf("the difference has %d bytes, at most %d", len(frame), wire.ViewMessageMax)
	}
	return d, frame, err
}

// sendDifference sends the newest difference to some nodes.
func (s *Server) sendDifference(to []membership.NodeID) {
	for _, id := range to {
		s.sendFrame(id, s.state.leader.spreadFrame)
	}
}

// reachNot records that a node has no connection to the seed: its subtree gets the newest difference
// from the seed.
func (s *Server) reachNot(id membership.NodeID) {
	if l := s.state.leader; l != nil && l.spread != nil {
		s.sendDifference(l.spread.Unreachable(id))
	}
}

// sendView sends the newest view to a node of it that has only that of an epoch. It sends each view
// once over a connection, since it is long.
func (s *Server) sendView(c *nodeConn, epoch uint64) {
	view := s.state.cluster.view
	if _, in := view.Rank(c.node.ID); !in || epoch >= view.Epoch || c.whole >= view.Epoch {
		return
	}
	b, err := wire.AppendJoin(nil, wire.JoinView(view))
	if err != nil {
		s.log.Error("view cannot be sent", "epoch", view.Epoch, "err", err)
		return
	}
	c.whole = view.Epoch
	c.out.Post(b)
}
