package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

// lateMin is the delay of a turn that counts as a suspension of the loop. It is shorter than the time that the arbiter gives any node to
// answer.
const lateMin = handshake.Tick / 10

// keepTurning makes the loop take a turn every Tick, with the pings (handshake.Outbox).
func (s *Server) keepTurning() {
	now := time.Now()
	s.after(now.Truncate(handshake.Tick).Add(handshake.Tick).Sub(now), s.keepTurning)
}

// noteTurn detects that the loop was suspended: because the process or its machine was stopped, or the machine is starved. What the
// nodes have sent meanwhile has not been read. On some systems the monotonic clock stands still while the machine is suspended, so the
// wall clock counts as well.
func (s *Server) noteTurn(now time.Time) {
	due := s.state.turn.Add(handshake.Tick)
	if l := s.state.leader; l != nil && !l.due.IsZero() && l.due.Before(due) {
		due = l.due
	}
	s.state.turn = now
	if late := max(now.Sub(due), now.Round(0).Sub(due.Round(0))); late > lateMin {
		s.resume(now, late)
	}
}

// resume continues after a suspension: what the arbiter waits for gets its time again. After a long one, nodes may have given up this
// seed. Then all get the time to connect again, as if they had lost their connections now.
func (s *Server) resume(now time.Time, late time.Duration) {
	l := s.state.leader
	if l == nil {
		return
	}
	grace := time.Duration(0)
	if late > s.lim.Silence/2 {
		grace = s.lim.Away
		l.grace = now.Add(grace)
		for id, t := range l.away {
			l.away[id] = s.again(t)
		}
		l.absent, l.returning = s.again(l.absent), s.again(l.returning)
		s.log.Warn("this seed was suspended, and its nodes may have left it: it removes none that does not answer before", "suspended for", late.Round(time.Millisecond), "within", grace)
	}
	if l.arbiter == nil {
		return
	}
	l.arbiter.Resumed(now, grace)
	for id := range l.nodes {
		s.send(id, s.ping())
	}
	s.decide()
}

// ask finds out whether the process of a node without a connection has ended. Then the node is gone at once. A firewall between this
// seed and the node may refuse connections as well. So in a formed world ask waits for another node to lose the node, too, if one has a
// connection, or may return after a suspension.
func (s *Server) ask(l *leader, id membership.NodeID) {
	rank, in := s.state.cluster.view.Rank(id)
	if s.cfg.HasEnded == nil || s.ctx.Err() != nil || !in || l.nodes[id] != nil || l.asking[id] {
		return
	}
	v := s.state.cluster.view
	if l.arbiter != nil && !l.arbiter.Accused(id) && (l.isWatched(v, rank) || time.Now().Before(l.grace)) {
		return
	}
	node := v.Nodes[rank]
	l.asking[id] = true
	s.conns.Go(func() {
		s.addressChecks <- struct{}{}
		ctx, cancel := context.WithTimeout(s.ctx, s.lim.Poll)
		ended := s.cfg.HasEnded(ctx, node)
		cancel()
		<-s.addressChecks
		s.post(func() {
			delete(l.asking, id)
			if ended && s.state.leader == l && l.nodes[id] == nil {
				s.giveUp(l, id, fmt.Sprintf("its process has ended: nothing listens at %s any more", node.Addr()), false)
			}
		})
	})
}

// isWatched reports whether a node with a connection may notice the end of a node of the view: any one, or a neighbor in a sparse topology.
func (l *leader) isWatched(v membership.View, rank int) bool {
	if l.pending.Topology.IsFull() {
		return len(l.nodes) > 0
	}
	neighbors := l.pending.Topology.Graph(v.Size()).Neighbors(rank)
	return slices.ContainsFunc(neighbors, func(rank int) bool { return l.nodes[v.Nodes[rank].ID] != nil })
}
