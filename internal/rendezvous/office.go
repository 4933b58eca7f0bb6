package rendezvous

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
)

// overLinger is how long the seeds of a world go on at the least when that is over, so that
// nodes and seeds that are about to turn to them still learn of it.
//
// After that the leader waits until each seed that it reaches has acknowledged that the
// world is over, and then has changeEnd agreed on, with which all seeds end. A seed also
// ends when it reaches no other one, and after limits.over in any case.
//
// A seed that was started before the world was over, and learns that from the leader in
// whose term it ended, ends like the others. One that comes back when all others have ended
// reaches no majority and cannot know what they have agreed on: it waits, as it does when
// they are down, and says so (complain). One that knew when it was started that the world is
// over is there for the next one.
const overLinger = time.Second

// An office is what a seed has as long as it leads: it alone admits nodes, and
// decides who is in the world. One that decides alone always does.
type office struct {
	held    bool
	begun   bool   // it has begun with what the record has
	ending  bool   // that the world is over, or another begins, is to be agreed on
	self    uint64 // this seed
	leads   uint64 // the seed that does, as far as is known; 0: none
	term    uint64 // since when
	pending int    // changes that are to be agreed on

	// Whether this seed knew of a world that was not over, and of a leader: then it
	// is over for it when that is.
	witness bool
	// The epoch of the view that this seed has read of when it was started, unless a
	// node of it has been here since; 0: none.
	inherited uint64
	// Nodes that have left in good order since this seed leads.
	left map[membership.NodeID]bool
	// Nodes whose conn has ended and that may come back, with their last one.
	departed map[membership.NodeID]*guest

	lonely    *time.Timer // when nobody has led for long
	clock     *time.Timer // when the formation has taken too long
	absence   *time.Timer // when nodes should have turned to this seed
	returning *time.Timer // when nobody of the world comes back any more
	lingering *time.Timer // when to see whether other seeds still need this one

	overSince time.Time // when this seed learned that the world is over
	end       endState
	opened    bool // the log was opened
	// The term in which the world ended that a snapshot of another seed is about; 0: none.
	overTerm uint64
}

// An endState is how far the leader has come with changeEnd.
type endState int

const (
	endNotProposed endState = iota
	endProposed
	endAgreed
)

// constitute has this seed lead, or agree with others who does.
func (s *Server) constitute() (err error) {
	if s.cfg.Quorum != nil {
		return s.assemble()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.authority = s.cfg.Authority
	s.office.held = true
	s.begin()
	s.announce()
	return nil
}

// lead takes note of which seed leads, 0: none. The lock is held.
func (s *Server) lead(seed, term uint64) {
	if s.office.held {
		s.resign(seed)
	}
	if s.office.leads == 0 && seed != 0 && !s.office.witness {
		s.office.inherited = s.record.view.Epoch
	}
	if s.office.lonely != nil {
		s.office.lonely.Stop()
	}
	if seed == 0 {
		s.office.lonely = time.AfterFunc(lonelyAfter, s.complain)
	}
	s.office.leads, s.office.term, s.office.begun, s.office.ending = seed, term, false, false
	s.office.witness = s.office.witness || seed != 0 && s.office.overTerm == term
	if s.office.end == endProposed {
		s.office.end = endNotProposed
	}
	if seed != 0 {
		if len(s.cfg.Quorum.Seeds) > 1 {
			s.events.add(Event{Leader: s.peers.addr(seed)})
		}
		s.log.Info("a seed leads", "seed", s.peers.addr(seed), "this one", seed == s.office.self, "term", term)
	}
	if seed != 0 && seed == s.office.self {
		s.office.held = true
		switch {
		case s.record.authority == nil:
			s.found()
		case s.record.over && !s.office.witness:
			s.propose(change{Kind: changeAnew})
		default:
			s.begin()
		}
	}
	s.announce()
}

// found gives the cluster its authority. The lock is held.
func (s *Server) found() {
	b, err := s.cfg.Authority.Marshal()
	if err != nil {
		s.log.Error("authority of the cluster cannot be shared", "err", err)
		return
	}
	s.propose(change{Kind: changeFound, Authority: b})
}

// begin begins with what the record has. The lock is held.
func (s *Server) begin() {
	s.retire()
	s.office.begun, s.arbiter = true, nil
	s.guests, s.office.left = make(map[membership.NodeID]*guest), make(map[membership.NodeID]bool)
	s.office.departed = make(map[membership.NodeID]*guest)
	s.pending = membership.NewPendingJoins(membership.Policy{World: s.cfg.World, Elastic: s.cfg.Elastic, Min: s.cfg.Min, Max: s.cfg.Max}, s.office.term<<32)
	now := time.Now()
	if s.record.over {
		return // There is nobody to serve.
	}
	if s.record.begun {
		s.form = membership.ResumeFormation(s.record.view, s.record.formed, s.cfg.FormTimeout, now)
		s.awaitReturn()
	} else if form, err := membership.NewFormation(s.cfg.World, s.cfg.FormTimeout, now); err == nil { // as it was in Serve
		s.form = form
	}
	if s.record.formed {
		s.arbiter = membership.NewArbiter(s.record.view, s.pending)
		s.office.absence = time.AfterFunc(s.lim.away, s.missAbsent(s.arbiter))
	}
	if at, ok := s.form.Deadline(); ok {
		form := s.form
		s.office.clock = time.AfterFunc(at.Sub(now), func() {
			s.step(func(now time.Time) membership.Step {
				if s.form != form {
					return membership.Step{}
				}
				return form.Tick(now)
			})
		})
	}
}

// missAbsent tells an arbiter of nodes that have not turned to this seed since it leads:
// they are like those whose conn has ended for good.
func (s *Server) missAbsent(arbiter *membership.Arbiter) func() {
	return func() {
		s.judge(func(now time.Time) {
			for _, n := range s.record.view.Nodes {
				if s.arbiter == arbiter && s.guests[n.ID] == nil && s.office.departed[n.ID] == nil {
					arbiter.Gone(now, n.ID, false, "it has not turned to the seed that leads")
				}
			}
		})
	}
}

// lonelyAfter is how long seeds may take to agree on who leads before each says so.
const lonelyAfter = 30 * time.Second

// complain says that no seed leads, now and as long as none does.
func (s *Server) complain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.office.leads != 0 || s.open.Err() != nil || isClosed(s.over) {
		return
	}
	s.log.Warn("no seed leads: this one does not reach half of the others, or they have ended", "for", lonelyAfter, "seeds", s.cfg.Quorum.Seeds)
	s.office.lonely.Reset(lonelyAfter)
}

// resign leaves everything to the seed that leads now. The lock is held.
func (s *Server) resign(leader uint64) {
	s.retire()
	s.office.held, s.office.pending, s.arbiter = false, 0, nil
	for id, g := range s.guests {
		s.answered(id, nil, noConn)
		g.out.close(frame(wire.JoinElsewhere{Leader: s.peers.addr(leader)}))
	}
	s.guests = make(map[membership.NodeID]*guest)
}

// retire stops what comes with time. The lock is held.
func (s *Server) retire() {
	for _, t := range []*time.Timer{s.decision, s.office.clock, s.office.absence, s.office.returning} {
		if t != nil {
			t.Stop()
		}
	}
	if s.open.Err() == nil {
		return
	}
	for _, t := range []*time.Timer{s.office.lingering, s.office.lonely} {
		if t != nil {
			t.Stop()
		}
	}
}

// propose has a change agreed on. The lock is held.
func (s *Server) propose(c change) {
	s.office.pending++
	c.Term = s.office.term
	s.office.ending = s.office.ending || c.Kind == changeOver || c.Kind == changeAnew
	if s.peers == nil {
		s.commit(c) // There is nobody to ask.
		return
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("seed: " + err.Error())
	}
	s.peers.ledger().Propose(s.office.term, b)
}

// commit makes a change that was agreed on, and acts on it if this seed leads. The
// lock is held.
func (s *Server) commit(c change) {
	before := s.record.view
	if s.office.held {
		s.office.pending--
	}
	if err := s.record.apply(c); err != nil {
		s.log.Error("change makes no sense", "kind", c.Kind, "err", err)
		return
	}
	if s.office.held && (s.peers == nil || s.open.Err() == nil) {
		s.act(before, c)
	}
	s.announce()
	if c.Kind == changeEnd && s.office.lingering != nil && s.record.over && !s.office.held {
		s.end()
	}
}

// act does what follows from a change, which this seed has proposed. The lock is
// held.
func (s *Server) act(before membership.View, c change) {
	v := s.record.view
	switch {
	case c.Kind == changeFound || c.Kind == changeAnew:
		for _, g := range s.guests {
			g.out.close(nil) // It is of the world before, and hears so when it is back.
		}
		s.office.ending = false
		s.begin()
	case c.Kind == changeOver:
		s.dismissAll(c.Failure)
	case c.Kind == changeEnd:
		s.office.end = endAgreed // The others may not know yet.
	case c.Kind == changeView && !s.record.formed:
		s.log.Info("world is full, its nodes connect to each other", "epoch", v.Epoch, "nodes", v.Size())
		s.tell(frame(viewMessage(v)))
	case c.Kind == changeView:
		s.adopt(before, c)
		if v.Size() == 0 && len(s.guests) == 0 {
			s.propose(change{Kind: changeOver})
		}
	case c.Kind == changeFormed:
		s.log.Info("world has formed", "epoch", v.Epoch, "nodes", v.Size())
		s.tell(frame(wire.JoinFormed{Epoch: v.Epoch}))
	}
}

// announce tells those who wait here how the world stands. The lock is held.
func (s *Server) announce() {
	if s.peers != nil && s.office.leads == 0 {
		return // What is read from a log may be of a time long past.
	}
	if !s.record.over {
		s.office.witness = true
	}
	if s.record.formed && !s.record.over && !isClosed(s.decided) {
		close(s.decided)
	}
	switch {
	case !s.record.over || !s.office.witness:
	case s.peers == nil:
		s.end()
	case s.office.lingering == nil:
		s.office.overSince, s.office.end = time.Now(), endNotProposed
		s.office.lingering = time.AfterFunc(overLinger, s.checkNeeded)
	}
}

// checkNeeded ends a seed whose world is over when no other seed needs it any more.
func (s *Server) checkNeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.record.over: // The next one has begun.
		s.office.lingering = nil
	case time.Since(s.office.overSince) >= s.lim.over || !slices.ContainsFunc(s.peers.ids(), s.peers.reaches):
		s.end()
	default:
		s.office.lingering.Reset(overLinger)
	}
}

// shareEnd ends a world that is over, as its leader, as soon as the seeds that this one
// reaches know that. The lock is held.
func (s *Server) shareEnd(behind []uint64) {
	switch {
	case s.office.lingering == nil || !s.record.over || time.Since(s.office.overSince) < overLinger:
	case slices.ContainsFunc(behind, s.peers.reaches):
	case s.office.end == endNotProposed:
		s.office.end = endProposed
		s.propose(change{Kind: changeEnd})
	case s.office.end == endAgreed:
		s.end()
	}
}

// dismissAll tells all who are here that the world is over. The lock is held.
func (s *Server) dismissAll(failure string) {
	last := []byte(nil)
	if failure != "" {
		last = frame(wire.JoinFailed{Text: failure})
	}
	for _, g := range s.guests {
		g.out.close(last)
	}
}

// end ends the waiting for a world that is over, as who asks from now on is told. The
// lock is held.
func (s *Server) end() {
	s.office.ending = false
	if s.err == nil && s.record.failure != "" {
		s.err = errors.New(s.record.failure)
	}
	for _, c := range []chan struct{}{s.decided, s.over} {
		if !isClosed(c) {
			close(c)
		}
	}
}

// lookAround ends the world if all its nodes have gone. If they have not all left in
// good order, where seeds last, they get time to come back. The lock is held.
func (s *Server) lookAround(g *guest, left bool) {
	if _, in := s.record.view.Rank(g.node.ID); in { // The end of other nodes ends no world.
		s.office.left[g.node.ID] = left
	}
	if !s.office.held || !s.record.begun || s.record.over || s.office.ending || len(s.guests) > 0 {
		return
	}
	stays := func(n membership.Node) bool { return !s.office.left[n.ID] }
	if s.peers == nil || !slices.ContainsFunc(s.record.view.Nodes, stays) {
		s.propose(change{Kind: changeOver})
		return
	}
	s.awaitReturn()
}

// awaitReturn gives nodes time to come back. The lock is held.
func (s *Server) awaitReturn() {
	if s.office.returning != nil {
		s.office.returning.Stop()
	}
	term := s.office.term
	s.office.returning = time.AfterFunc(s.lim.back, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.office.held || s.office.term != term || len(s.guests) > 0 || !s.record.begun || s.record.over || s.office.ending {
			return
		}
		c := change{Kind: changeOver}
		if s.isDeserted() {
			c.Kind = changeAnew
		}
		s.log.Warn("no node of the world has come back", "within", s.lim.back, "another one begins", c.Kind == changeAnew)
		s.propose(c)
	})
}

// isDeserted reports whether the world is one that this seed has only read of. The
// lock is held.
func (s *Server) isDeserted() bool {
	return s.record.begun && s.record.view.Epoch == s.office.inherited
}

// leader is the address of the seed that leads, and whether that is this one, which
// can do what it is asked for.
func (s *Server) leader() (addr string, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.office.held && s.office.begun {
		return "", true
	}
	if s.office.leads == s.office.self {
		return "", false
	}
	return s.peers.addr(s.office.leads), false
}

// authority is that of the cluster; nil: it has none yet.
func (s *Server) authority() *pki.Authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.authority
}

// cluster is the name of the cluster, empty if it has none yet.
func (s *Server) cluster() string {
	if a := s.authority(); a != nil {
		return a.Cluster()
	}
	return ""
}

// addrs is where nodes find the seeds, if there are several.
func (s *Server) addrs() []string {
	if s.peers == nil || len(s.cfg.Quorum.Seeds) == 1 {
		return nil
	}
	return s.cfg.Quorum.Seeds
}
