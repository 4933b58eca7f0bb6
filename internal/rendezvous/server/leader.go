package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
)

// A leader is the state of the leading seed. The seed creates it from the state of the cluster
// when it begins to lead, and drops it when another seed does.
type leader struct {
	form    *membership.Formation
	arbiter *membership.Arbiter // nil: the world has not formed
	pending *membership.PendingJoins
	nodes   map[membership.NodeID]*nodeConn // nodes that have a connection to this seed
	ending  bool                            // the end of this world, or the next one, is proposed

	// left contains the nodes of the view without a connection; true: the world does not wait for the node, which has left, or which has
	// ended without a seed that keeps the state of the world.
	left map[membership.NodeID]bool
	// away contains the disconnected nodes that may reconnect, with the timer after which they
	// count as gone.
	away map[membership.NodeID]*timer

	forming *timer // until the next report of missing nodes

	spread      *membership.ViewSpread // of the newest difference; nil: none
	spreadFrame []byte                 // that difference
	spreading   *timer                 // until the roots have had time to confirm it

	heard  map[membership.NodeID]heard
	asking map[membership.NodeID]bool // nodes of which the seed is finding out whether they have ended

	decision  *timer    // until the next decision of the arbiter is due
	due       time.Time // when that is; zero: there is none
	grace     time.Time // until then nodes have time to connect again after a suspension of this seed
	absent    *timer    // until nodes that have not connected since this seed leads are gone
	returning *timer    // until a world without connected nodes is over
}

// leaderlessAfter is how long seeds may take to elect a leader before each logs that: they are started one after the other.
const leaderlessAfter = 10 * wake.RemindAfter

// setLeader records the seed that leads since a term; 0: none.
func (s *Server) setLeader(seed, term uint64) {
	if s.state.leader != nil {
		s.stepDown(seed)
	}
	if s.state.leads == 0 && seed != 0 && !s.state.end.served {
		s.state.deserted = s.state.cluster.view.Epoch
	}
	s.state.leaderless.stop()
	if seed == 0 {
		s.state.leaderless = s.after(leaderlessAfter, s.logLeaderless)
	}
	s.state.leads, s.state.term, s.state.inFlight = seed, term, 0
	s.state.end.setLeader(seed, term)
	if seed != 0 && s.peers.others() {
		s.emit(Event{Leader: s.peers.addrs[seed]})
		s.log.Info("a seed leads", "seed", s.peers.addrs[seed], "this one", s.isLeader(), "term", term)
	}
	if s.isLeader() {
		switch {
		case s.state.cluster.authority == nil:
			s.proposeAuthority()
		case s.state.cluster.Over && !s.state.end.served:
			s.propose(change{Kind: changeAnew})
		default:
			s.begin()
		}
	}
	s.updateWorld()
}

// proposeAuthority proposes the authority of this seed as that of the cluster.
func (s *Server) proposeAuthority() {
	b, err := s.cfg.Authority.Marshal()
	if err != nil {
		s.state.broken = fmt.Errorf("authority of the cluster cannot be shared: %w", err)
		s.finish()
		return
	}
	s.propose(change{Kind: changeFound, Authority: b})
}

// begin makes the leader state from the state of the cluster.
func (s *Server) begin() {
	if old := s.state.leader; old != nil {
		for _, c := range old.nodes {
			c.out.Close(nil) // The node is of the world before, and learns so when it rejoins.
		}
	}
	r, now := &s.state.cluster, time.Now()
	l := &leader{
		nodes: make(map[membership.NodeID]*nodeConn), left: make(map[membership.NodeID]bool), away: make(map[membership.NodeID]*timer),
		asking: make(map[membership.NodeID]bool), heard: make(map[membership.NodeID]heard),
		pending: membership.NewPendingJoins(membership.Policy{World: s.cfg.World, Elastic: s.cfg.Elastic, Min: s.cfg.Min, Max: s.cfg.Max}, s.state.term<<32),
	}
	if r.Begun {
		l.pending.Topology, _ = s.topology()
		l.form = membership.ResumeFormation(r.view, r.Formed, s.cfg.FormTimeout, now)
	} else {
		l.form, _ = membership.NewFormation(s.cfg.World, s.cfg.FormTimeout, now) // checked by Serve
	}
	s.state.leader = l
	s.notify()
	if r.Over {
		return // No node needs the seed.
	}
	if r.Begun {
		s.awaitReturn()
		s.remindForming()
	}
	if r.Formed {
		l.arbiter = membership.NewArbiter(r.view, l.pending)
		l.pending.Await(now.Add(s.lim.Away))
		l.absent = s.afterAsLeader(s.lim.Away, s.reportAbsent)
	}
	if at, ok := l.form.Deadline(); ok {
		s.afterAsLeader(at.Sub(now), func() { s.apply(l.form.Tick(time.Now())) })
	}
}

// reportAbsent reports to the arbiter that the nodes that have not connected to this seed since
// it leads are gone. The others forget the joining nodes that have not connected to it either.
func (s *Server) reportAbsent() {
	l := s.state.leader
	for _, n := range s.state.cluster.view.Nodes {
		if c := l.nodes[n.ID]; c != nil {
			s.sendMissed(c)
		} else if l.away[n.ID] == nil {
			l.arbiter.Gone(time.Now(), n.ID, false, "it has not connected to the seed that leads")
		}
	}
	s.decide()
}

// logLeaderless logs that no seed leads, and again after each leaderlessAfter while none does.
func (s *Server) logLeaderless() {
	if s.state.leads == 0 && s.ctx.Err() == nil && !s.state.over {
		s.log.Warn("no seed leads: this one does not reach half of the others, or they have ended", "for", leaderlessAfter, "seeds", s.cfg.Replication.Seeds)
		s.state.leaderless = s.after(leaderlessAfter, s.logLeaderless)
	}
}

// stepDown redirects all nodes to the seed that leads now.
func (s *Server) stepDown(seed uint64) {
	l := s.state.leader
	for id, c := range l.nodes {
		s.setAnswer(id, nil, noConn)
		c.out.Close(handshake.Frame(wire.JoinRedirect{Leader: s.peers.addrs[seed]}))
	}
	s.state.leader = nil
}

// apply proposes the changes of a step of the formation.
func (s *Server) apply(step membership.Step) {
	l := s.state.leader
	if step.Form != nil {
		// A view that is too long to be sent must not be committed.
		if _, err := wire.AppendJoin(nil, wire.JoinView{Nodes: step.Form.Nodes}); err != nil {
			s.apply(l.form.Abort(fmt.Errorf("making the first view: %w", err)))
			return
		}
		links, _ := s.topology()
		s.propose(change{Kind: changeView, Entries: []membership.Entry{*step.Form}, Topology: links.String()})
	}
	if step.Formed {
		l.pending.Topology, _ = s.topology()
		// The arbiter counts reports from now on.
		l.arbiter = membership.NewArbiter(s.state.cluster.view, l.pending)
		s.propose(change{Kind: changeFormed})
		s.decide()
	}
	if step.Err != nil {
		s.log.Info("world did not form", "err", step.Err)
		s.state.failure = step.Err
		s.propose(change{Kind: changeOver, Failure: step.Err.Error()})
	}
}

// checkEmpty ends the world if all its nodes have gone. Unless all have left on their own, they get time to reconnect.
func (s *Server) checkEmpty() {
	l, r := s.state.leader, &s.state.cluster
	if !r.Begun || r.Over || l.ending || s.isPopulated() {
		return
	}
	stays := func(n membership.Node) bool { return !l.left[n.ID] }
	if !slices.ContainsFunc(r.view.Nodes, stays) {
		s.propose(change{Kind: changeOver})
		return
	}
	s.awaitReturn()
}

// isPopulated reports whether a node of the view has a connection to this seed. Nodes that wait to join do not count.
func (s *Server) isPopulated() bool {
	return slices.ContainsFunc(s.state.cluster.view.Nodes, func(n membership.Node) bool { return s.state.leader.nodes[n.ID] != nil })
}

// awaitReturn gives the nodes of the world time to reconnect, after which it is over.
func (s *Server) awaitReturn() {
	l, r := s.state.leader, &s.state.cluster
	if l.returning.isRunning() {
		return
	}
	l.returning = s.afterAsLeader(s.lim.Return, func() {
		if s.isPopulated() || !r.Begun || r.Over || l.ending {
			return
		}
		c := change{Kind: changeOver}
		if s.isDeserted() {
			c.Kind = changeAnew
		}
		s.log.Warn("no node of the world has come back", "within", s.lim.Return, "another one begins", c.Kind == changeAnew)
		s.propose(c)
	})
}

// isDeserted reports whether no node of the world has connected since the seed was started
// with the state of that world.
func (s *Server) isDeserted() bool {
	return s.state.cluster.Begun && s.state.cluster.view.Epoch == s.state.deserted
}

// findLeader returns the address of the leader, and whether that is this seed and it is ready.
func (s *Server) findLeader() (addr string, here bool) {
	s.read(func() {
		if here = s.state.leader != nil; !here && !s.isLeader() {
			addr = s.peers.addrs[s.state.leads]
		}
	})
	return addr, here
}

// authority returns the authority of the cluster, nil if there is none yet.
func (s *Server) authority() (a *pki.Authority) {
	s.read(func() { a = s.state.cluster.authority })
	return a
}

// cluster returns the name of the cluster, empty if it has none yet.
func (s *Server) cluster() string {
	if a := s.authority(); a != nil {
		return a.Cluster()
	}
	return ""
}
