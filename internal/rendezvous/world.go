package rendezvous

import (
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// judge is hear for those who do not hold the lock.
func (s *Server) judge(input func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(input)
}

// hear carries an input to the arbiter out, if the world has formed, and has the
// arbiter decide when it is time to. The lock is held.
func (s *Server) hear(input func(now time.Time)) {
	if s.arbiter == nil || s.open.Err() != nil {
		return
	}
	now := time.Now()
	input(now)
	for s.office.pending == 0 { // Nothing is decided before all know of what was.
		r, ok := s.arbiter.Tick(now)
		if !ok {
			break
		}
		s.rule(r)
	}
	due, ok := s.arbiter.Deadline()
	switch {
	case !ok, s.office.pending > 0: // then when it was agreed on
	case s.decision == nil:
		s.decision = time.AfterFunc(due.Sub(now), func() { s.judge(func(time.Time) {}) })
	default:
		s.decision.Reset(due.Sub(now))
	}
}

// lost tells the arbiter that a node has lost another, and asks both for a sign of
// life. The lock is held.
func (s *Server) lost(now time.Time, by, to membership.NodeID, reason string) {
	if !s.arbiter.Lost(now, by, to, reason) {
		return
	}
	for _, id := range []membership.NodeID{by, to} {
		if g := s.guests[id]; g != nil {
			g.out.post(frame(s.ping()))
		}
	}
}

// ping asks for a sign of life, and says when it was asked for.
func (s *Server) ping() wire.JoinPing { return wire.JoinPing{Seq: uint64(time.Since(s.began))} }

// asked is when a ping was sent that has come back.
func (s *Server) asked(m wire.JoinPing, now time.Time) time.Time {
	if m.Seq > uint64(now.Sub(s.began)) {
		return now // which nobody has asked
	}
	return s.began.Add(time.Duration(m.Seq))
}

// rule carries a decision out. The lock is held.
func (s *Server) rule(r membership.Decision) {
	for id, why := range r.Dismissed {
		s.log.Warn("node is not let in", "node", id, "reason", why)
		s.send(id, frame(wire.JoinFailed{Text: why}), true)
	}
	for _, id := range r.Forgotten {
		for _, g := range s.guests {
			g.out.post(frame(wire.JoinForget{Peer: id}))
		}
	}
	if len(r.Entries) > 0 {
		s.change(r)
	}
	if r.Held > 0 {
		s.log.Warn("world has too few nodes, and waits for others", "nodes", r.Held, "least", s.cfg.Min)
		s.tell(frame(wire.JoinProgress{Joined: uint32(r.Held), World: uint32(s.cfg.Min)}))
	}
	if r.Call {
		s.log.Info("nodes are called to rest, so that others can join", "epoch", s.record.view.Epoch)
		s.tell(frame(wire.JoinCall{Epoch: s.record.view.Epoch}))
	}
	if i := r.Invitation; i != nil {
		s.invite(i)
	}
}

// invite sends an invitation, and before it tells the others to expect whom it is
// for.
func (s *Server) invite(i *membership.Invitation) {
	nodes := nodesMessage(i.Circle)
	last := len(nodes) - 1
	expect, err := wire.AppendJoin(nil, wire.JoinExpect{Nodes: nodes[last:]})
	var invite []byte
	if err == nil {
		invite, err = wire.AppendJoin(nil, wire.JoinInvite{Number: i.Number, Epoch: s.record.view.Epoch, World: uint32(i.World), Nodes: nodes})
	}
	if err != nil {
		s.log.Error("invitation cannot be sent", "node", i.Node.ID, "err", err)
		return
	}
	for _, n := range i.Circle[:last] {
		s.send(n.ID, expect, false)
	}
	s.send(i.Node.ID, invite, false)
}

// send posts a frame to a node, if it is there, perhaps as the last. The lock is
// held.
func (s *Server) send(id membership.NodeID, b []byte, last bool) {
	if g := s.guests[id]; g != nil {
		g.out.put(b, last)
	}
}

// change has the view agreed on that a decision leads to. The lock is held.
func (s *Server) change(r membership.Decision) {
	if err := s.record.try(r.Entries); err != nil {
		panic("seed: the arbiter rules what makes no sense: " + err.Error())
	}
	s.propose(change{Kind: changeView, Entries: r.Entries, Reasons: r.Reasons, Left: r.Left})
}

// adopt tells all nodes of the view that a change has made: those that stay, or come,
// what it is, and those that go why. The lock is held.
func (s *Server) adopt(before membership.View, c change) {
	view := s.record.view
	s.arbiter.Adopt(view)
	for rank, n := range before.Nodes {
		why, goes := c.Reasons[n.ID]
		if !goes {
			continue
		}
		s.log.Info("node is no longer in the world", "epoch", view.Epoch, "node", n.ID, "rank", rank, "reason", why)
		s.send(n.ID, frame(s.record.farewell(n.ID)), true)
	}
	b, err := wire.AppendJoin(nil, viewMessage(view))
	if err != nil {
		s.log.Error("view cannot be sent", "epoch", view.Epoch, "err", err)
		return
	}
	now := time.Now()
	for rank, n := range view.Nodes {
		if _, was := before.Rank(n.ID); !was {
			s.log.Info("node is in the world", "epoch", view.Epoch, "node", n.ID, "rank", rank, "name", n.Name)
			if s.guests[n.ID] == nil { // It has gone while that was agreed on.
				s.arbiter.Gone(now, n.ID, false, "it went away when it had just been let in")
			}
		}
		s.send(n.ID, b, false)
	}
}
