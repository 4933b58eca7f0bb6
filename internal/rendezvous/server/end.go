package server

import (
	"errors"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

// ending is the progress of a seed toward the end of its world. Several seeds continue for at least a Tick after it,
// so that nodes and seeds that connect can learn of it.
//
// Then the leader waits until each seed that it reaches has acknowledged the end, and then
// proposes changeEnd, with which all seeds end. A seed also ends when it reaches no other seed,
// and after Limits.End in any case.
//
// A seed that was started before the end of the world, and learns of it from the leader that
// decided it, ends like the others. A seed that is restarted after all others have ended
// reaches no majority and cannot know their decisions: it waits, as it does when they are down,
// and logs that (logLeaderless). A seed that knew at its start that the world is over serves
// the next one.
type ending struct {
	// served says that this seed has known the world and one of its leaders before the end, or
	// has learned of the end from the leader that decided it.
	served bool
	// restored is the term of the end of the world according to the snapshot of another seed.
	restored uint64

	since time.Time // when this seed learned that the world is over
	check *timer    // until checkEnd; nil: the world is not over
	stage endStage
}

// An endStage is the state of changeEnd at the leader.
type endStage int

const (
	endNotProposed endStage = iota
	endProposed
	endCommitted
)

func (e *ending) setLeader(seed, term uint64) {
	e.served = e.served || seed != 0 && e.restored == term
	if e.stage == endProposed {
		e.stage = endNotProposed
	}
}

// updateWorld acts on the state of the world in the log.
func (s *Server) updateWorld() {
	r, e := &s.state.cluster, &s.state.end
	if s.state.leads == 0 {
		return // The state may be old until the log has a leader.
	}
	e.served = e.served || !r.Over
	if r.Formed && !r.Over && !s.state.decided {
		s.state.decided = true
		s.notify()
	}
	if !r.Over || !e.served {
		return
	}
	if f := s.state.failure; r.Failure != "" && s.state.err == nil {
		if s.state.err = errors.New(r.Failure); f != nil && f.Error() == r.Failure {
			s.state.err = f
		}
	}
	switch {
	case !s.peers.others():
		s.finish()
	case e.check == nil:
		e.since, e.stage = time.Now(), endNotProposed
		e.check = s.after(handshake.Tick, s.checkEnd)
	}
}

// checkEnd ends a seed after the end of the world when it reaches no other seed, or has waited
// for Limits.End.
func (s *Server) checkEnd() {
	e := &s.state.end
	switch {
	case !s.state.cluster.Over: // The next one has begun.
		e.check = nil
	case time.Since(e.since) >= s.lim.End || !slices.ContainsFunc(s.peers.ids(), s.peers.reaches):
		s.finish()
	default:
		e.check = s.after(handshake.Tick, s.checkEnd)
	}
}

// proposeEnd makes the leader of a world that is over propose changeEnd when all seeds that it
// reaches know of the end, and end when they have that change. The log calls it repeatedly,
// with the seeds that lack changes.
func (s *Server) proposeEnd(behind []uint64) {
	e := &s.state.end
	switch {
	case !s.isLeader() || e.check == nil || !s.state.cluster.Over || time.Since(e.since) < handshake.Tick:
	case slices.ContainsFunc(behind, s.peers.reaches):
	case e.stage == endNotProposed:
		e.stage = endProposed
		s.propose(change{Kind: changeEnd})
	case e.stage == endCommitted:
		s.finish()
	}
}

// commitEnd ends a seed that does not lead. The leader waits for the others.
func (s *Server) commitEnd() {
	switch e := &s.state.end; {
	case e.check == nil || !s.state.cluster.Over:
	case s.isLeader():
		e.stage = endCommitted
	default:
		s.finish()
	}
}

// finish ends Wait and Follow: the world is over for this seed.
func (s *Server) finish() {
	s.state.decided, s.state.over = true, true
	s.notify()
}
