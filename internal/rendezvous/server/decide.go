package server

import (
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// decide carries out the decisions of the arbiter that are due. Each waits until the change of
// the previous one is committed.
func (s *Server) decide() {
	l := s.state.leader
	if l == nil || l.arbiter == nil || s.ctx.Err() != nil {
		return
	}
	now := time.Now()
	for s.state.inFlight == 0 {
		d, ok := l.arbiter.Tick(now)
		if !ok {
			break
		}
		s.carryOut(l, d)
	}
	l.decision.stop()
	l.due = time.Time{}
	if due, ok := l.arbiter.Deadline(); ok && s.state.inFlight == 0 {
		wait := max(0, due.Sub(now))
		l.due = now.Add(wait)
		l.decision = s.afterAsLeader(wait, s.decide)
	}
}

// carryOut sends the messages of a decision, and proposes its change of the view.
func (s *Server) carryOut(l *leader, d membership.Decision) {
	for id, why := range d.Dismissed {
		s.log.Warn("node is not admitted to the world", "node", id, "reason", why)
		s.dismiss(id, wire.JoinFailed{Text: why})
	}
	for _, id := range d.Forgotten {
		for _, c := range l.nodes {
			c.out.Post(handshake.Frame(wire.JoinForget{Peer: id}))
		}
	}
	for _, id := range d.Confirmed {
		if c := l.nodes[id]; c != nil {
			s.log.Info("the links of a node are confirmed, and it enters the world when there is room", "node", id, "name", c.node.Name, "spare", c.spare)
		}
	}
	if len(d.Entries) > 0 {
		if err := s.state.cluster.try(d.Entries); err != nil {
			panic("seed: impossible decision of the arbiter: " + err.Error())
		}
		s.propose(change{Kind: changeView, Entries: d.Entries, Reasons: d.Reasons, Left: d.Left, Excluded: d.Excluded})
	}
	if d.TooFew > 0 {
		s.log.Warn("world has too few nodes, and waits for others", "nodes", d.TooFew, "least", s.cfg.Min)
		s.broadcast(wire.JoinProgress{Joined: uint32(d.TooFew), World: uint32(s.cfg.Min)})
	}
	if d.Quiesce {
		s.log.Info("nodes are asked to quiesce, so that others can join", "epoch", s.state.cluster.view.Epoch)
		s.broadcast(wire.JoinQuiesce{Epoch: s.state.cluster.view.Epoch})
	}
	if d.Invitation != nil {
		s.invite(d.Invitation)
	}
}

// invite announces a joining node to the nodes that it will connect to, and then invites it.
func (s *Server) invite(i *membership.Invitation) {
	last := len(i.Circle) - 1
	expect, err := wire.AppendJoin(nil, wire.JoinExpect{Nodes: i.Circle[last:]})
	var invite []byte
	if err == nil {
		invite, err = wire.AppendJoin(nil, wire.JoinInvite{Number: i.Number, Epoch: s.state.cluster.view.Epoch, World: uint32(i.World), Nodes: i.Circle})
	}
	if err != nil {
		s.log.Error("invitation cannot be sent", "node", i.Node.ID, "err", err)
		return
	}
	for _, n := range i.Circle[:last] {
		s.sendFrame(n.ID, expect)
	}
	s.sendFrame(i.Node.ID, invite)
}

// adopt distributes a committed view to its nodes, and sends the reason of their removal to removed
// nodes.
func (s *Server) adopt(before membership.View, c change) {
	view, l := s.state.cluster.view, s.state.leader
	l.arbiter.Adopt(view)
	for rank, n := range before.Nodes {
		if reason, removed := c.Reasons[n.ID]; removed {
			s.log.Info("node is no longer in the world", "epoch", view.Epoch, "node", n.ID, "rank", rank, "reason", reason)
			s.dismiss(n.ID, s.state.cluster.lastMessage(n.ID))
		}
	}
	s.distribute(before, view)
	s.warnOfDistance()
	for rank, n := range view.Nodes {
		if _, was := before.Rank(n.ID); !was {
			s.log.Info("node is in the world", "epoch", view.Epoch, "node", n.ID, "rank", rank, "name", n.Name)
			if l.nodes[n.ID] == nil { // Its connection ended while the view was agreed on.
				l.arbiter.Gone(time.Now(), n.ID, false, "its connection to the seed ended when it had just entered the world")
			}
		}
	}
}
