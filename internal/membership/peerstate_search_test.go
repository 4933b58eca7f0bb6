package membership

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// A search explores every joint state of a scenario once.
type search struct {
	scenario
	table
	seed  maphash.Seed
	seen  map[uint64]struct{}
	stack []modelState
	err   error
}

// run returns the number of states, and an error that describes the first bad one.
func (c scenario) run(t table) (states int, err error) {
	s := &search{scenario: c, table: t, seed: maphash.MakeSeed(), seen: make(map[uint64]struct{})}
	first := modelState{losses: c.losses, copies: c.copies, moves: c.adopters}
	s.explore(first)
	for len(s.stack) > 0 && s.err == nil {
		last := len(s.stack) - 1
		from := s.stack[last]
		s.stack = s.stack[:last]
		if s.step(from) {
			s.check(from)
		}
	}
	if s.err != nil {
		s.err = fmt.Errorf("%v: %w", c, s.err)
	}
	return len(s.seen), s.err
}

// explore puts a new state on the stack. States are compared by a hash of 64 bits:
// among a million states, two collide once in thirty million searches.
func (s *search) explore(m modelState) {
	key := maphash.Comparable(s.seed, m)
	if _, known := s.seen[key]; !known {
		s.seen[key] = struct{}{}
		s.stack = append(s.stack, m)
	}
}

func (s *search) failf(m *modelState, format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format+"; states %v", append(args, m.states)...)
	}
}

// step explores all successors of a state, and reports whether the state is terminal.
func (s *search) step(from modelState) (calm bool) {
	calm = true
	if int(from.next) < len(s.incidents) {
		calm = false
		s.meet(from, s.incidents[from.next])
	}
	for at := range s.ranks {
		for peer := range s.ranks {
			for _, p := range []struct {
				pending pairSet
				event   PeerEvent
			}{{from.lost, LinkLost}, {from.closed, LinkClosed}, {from.bye, Goodbye}} {
				if p.pending.has(at, peer) && s.endLink(from, at, peer, p.event) {
					calm = false
				}
			}
		}
		if from.moves > 0 && !from.gone[at] && !from.moved[at] && int(from.next) == len(s.incidents) && s.hasEnded(&from, at) {
			m := from
			m.moves--
			s.move(&m, at)
			s.explore(m)
		}
	}
	from.each(func(r notice) {
		calm = false
		m := from
		m.pull(r)
		s.hear(&m, r)
		s.explore(m)
		if from.copies > 0 {
			m := from
			m.copies--
			s.hear(&m, r)
			s.explore(m)
		}
		if from.losses > 0 {
			m := from
			m.losses--
			m.pull(r)
			s.explore(m)
		}
	})
	return calm
}

// meet explores all states that an incident leads to.
func (s *search) meet(from modelState, f incident) {
	from.next++
	switch f.kind {
	case isCut:
		if from.gone[f.rank] || from.gone[f.other] || from.down.has(f.rank, f.other) {
			s.explore(from)
			return
		}
		for _, seen := range []PeerEvent{LinkClosed, LinkLost} {
			m := from
			m.lost.add(f.rank, f.other)
			if seen == LinkLost {
				m.lost.add(f.other, f.rank)
			} else {
				m.closed.add(f.other, f.rank)
			}
			s.explore(m)
		}
	case dies:
		from.gone[f.rank], from.killed[f.rank] = true, true
		for at := range s.ranks {
			s.clear(&from, f.rank, at)
			if at != f.rank && !from.down.has(at, f.rank) {
				from.lost.add(at, f.rank)
			}
		}
		s.explore(from)
	case leaves:
		s.leave(from, f.rank, 0)
	}
}

// leave makes a rank leave the peers from at on. Each of them reads its goodbye, or
// finds its link silent or closed.
func (s *search) leave(from modelState, rank, at int) {
	if at == s.ranks {
		from.gone[rank] = true
		s.explore(from)
		return
	}
	state, effects := s.next(from.states[rank][at], SelfClosing)
	from.states[rank][at] = state
	s.clear(&from, rank, at)
	if at == rank || from.gone[at] || from.down.has(at, rank) || from.lost.has(at, rank) || from.closed.has(at, rank) {
		s.leave(from, rank, at+1)
		return
	}
	if from.down.has(rank, at) {
		from.closed.add(at, rank)
		s.leave(from, rank, at+1)
		return
	}
	m := from
	m.closed.add(at, rank)
	s.leave(m, rank, at+1)
	if effects.Has(SayGoodbye) {
		m = from
		m.lost.add(at, rank)
		s.leave(m, rank, at+1)
		m = from
		m.bye.add(at, rank)
		s.leave(m, rank, at+1)
	}
}

// clear drops the messages to a rank that is gone, and the events of its link to a
// peer.
func (s *search) clear(m *modelState, rank, peer int) {
	m.lost.remove(rank, peer)
	m.closed.remove(rank, peer)
	m.bye.remove(rank, peer)
	m.each(func(r notice) {
		if r.to == rank {
			m.pull(r)
		}
	})
}

// endLink ends a link at one end. A goodbye follows all reports.
func (s *search) endLink(from modelState, at, peer int, e PeerEvent) (done bool) {
	waits := false
	from.each(func(r notice) { waits = waits || e == Goodbye && r.from == peer && r.to == at })
	if waits {
		return false
	}
	from.lost.remove(at, peer)
	from.closed.remove(at, peer)
	from.bye.remove(at, peer)
	if e != Goodbye {
		from.purge(at, peer)
	}
	if !from.down.has(at, peer) {
		from.down.add(at, peer)
		switch e {
		case LinkLost:
			from.sawLost.add(at, peer)
		case LinkClosed:
			from.sawClosed.add(at, peer)
		default:
			from.sawBye.add(at, peer)
		}
		s.apply(&from, at, peer, e, notice{from: peer, to: at, peer: peer, by: at})
	}
	s.explore(from)
	return true
}

// hear delivers a report.
func (s *search) hear(m *modelState, r notice) {
	if r.by == r.to || m.gone[r.to] {
		return
	}
	epoch := uint64(1)
	if m.moved[r.to] {
		epoch = 2
	}
	about := r.peer
	if about == r.to {
		about = r.from
	}
	s.apply(m, r.to, about, s.event(PeerReport{Epoch: 1, Closed: r.closed, Self: r.peer == r.to}, epoch), r)
}

// apply applies an event of a peer at a rank, and carries out the effects of the table.
func (s *search) apply(m *modelState, at, peer int, e PeerEvent, news notice) {
	before := m.states[at][peer]
	after, effects := s.next(before, e)
	m.states[at][peer] = after
	adopts := e == AdoptedIn || e == AdoptedOut
	if !adopts && weight(after) < weight(before) {
		s.failf(m, "rank %d: rank %d was %v and is %v", at, peer, before, after)
	}
	if m.moved[at] && !adopts && effects&(EndComms|EndOperations|TellLost|TellClosed) != 0 {
		s.failf(m, "rank %d has the next view, and an effect of rank %d ends a part of it: %v", at, peer, effects)
	}
	if effects.Has(ReportLost) {
		if !m.down.has(at, peer) {
			s.failf(m, "rank %d reports the loss of rank %d to the seed, but is linked to it", at, peer)
		}
		m.reportedLost.add(at, peer)
	}
	if effects.Has(ReportLeft) {
		m.reportedLeft.add(at, peer)
	}
	if effects.Has(NotifyFailed) || effects.Has(NotifyLost) {
		if m.notified.has(at, peer) {
			s.failf(m, "rank %d notifies the failure of rank %d twice", at, peer)
		}
		m.notified.add(at, peer)
	}
	s.tellOf(m, at, peer, effects, news)
	if effects.Has(EndComms) {
		m.comms.add(at, peer)
		m.refused.add(at, peer)
	}
	if effects.Has(RevokeComms) {
		m.comms.add(at, peer)
		m.refused.add(at, peer)
		for to := range s.ranks {
			if !m.down.has(at, to) { // Otherwise the other end notices the end of the link.
				m.revoked[to].add(at, peer)
			}
		}
	}
	if effects.Has(EndOperations) {
		m.ops.add(at, peer)
	}
	if effects.Has(Trust) {
		m.refused.remove(at, peer)
	}
	if effects.Has(DropLink) && !m.down.has(at, peer) {
		m.down.add(at, peer)
		m.lost.remove(at, peer)
		m.closed.remove(at, peer)
		m.bye.remove(at, peer)
		m.purge(at, peer)
		if !m.gone[peer] && !m.down.has(peer, at) {
			m.closed.add(peer, at)
		}
	}
}

// tellOf makes a rank report a peer to others: once for its own loss, and once for each
// kind of report that it repeats.
func (s *search) tellOf(m *modelState, at, peer int, effects PeerEffects, news notice) {
	for _, t := range []struct {
		effect PeerEffects
		heard  *pairSet
	}{{TellLost, &m.toldLost}, {TellClosed, &m.toldClosed}} {
		if !effects.Has(t.effect) {
			continue
		}
		told := t.heard
		if news.by == at {
			told = &m.toldOwn
		}
		if told.has(at, peer) {
			s.failf(m, "rank %d reports rank %d to others again", at, peer)
		}
		told.add(at, peer)
		news.closed = t.effect == TellClosed
		s.tell(m, at, peer, news)
	}
	if effects.Has(TellPeer) && !m.down.has(at, peer) && !m.gone[peer] {
		m.push(notice{from: at, to: peer, peer: peer, by: news.by})
	}
}

// tell sends a report over all links of a rank.
func (s *search) tell(m *modelState, at, peer int, news notice) {
	for to := range s.ranks {
		if to != at && to != peer && to != news.from && !m.down.has(at, to) && !m.gone[to] {
			m.push(notice{from: at, to: to, peer: peer, by: news.by, closed: news.closed})
		}
	}
}

// move makes a rank adopt the next view, without the ranks that are gone. Of two ranks
// that have lost each other, the view has only the first.
func (s *search) move(m *modelState, at int) {
	if slices.Contains(s.removed(m), at) {
		return
	}
	m.moved[at] = true
	for peer := range s.ranks {
		switch {
		case peer == at:
		case slices.Contains(s.removed(m), peer):
			s.apply(m, at, peer, AdoptedOut, notice{from: at, by: at})
		default:
			s.apply(m, at, peer, AdoptedIn, notice{from: at, by: at})
		}
	}
}

// removed returns the ranks that are not in the next view.
func (s *search) removed(m *modelState) (ranks []int) {
	for rank := range s.ranks {
		if m.gone[rank] {
			ranks = append(ranks, rank)
		}
	}
	for _, f := range s.incidents {
		if f.kind == isCut && !m.gone[f.rank] && !m.gone[f.other] {
			ranks = append(ranks, f.other)
		}
	}
	return ranks
}

// ended reports whether the communicator of a set of ranks has ended on one of them.
func (s *search) ended(m *modelState, at, set int) bool {
	for peer := range s.ranks {
		if set>>peer&1 == 0 {
			continue
		}
		if peer != at && m.comms.has(at, peer) {
			return true
		}
		for by := range s.ranks {
			if set>>by&1 == 1 && m.revoked[at].has(by, peer) {
				return true
			}
		}
	}
	return false
}

// hasEnded reports whether a rank has ended a communicator, as it does before it
// adopts.
func (s *search) hasEnded(m *modelState, at int) bool {
	for peer := range s.ranks {
		if m.comms.has(at, peer) {
			return true
		}
	}
	return false
}

// weight orders states by their possible sequence within a view.
func weight(s PeerState) int {
	switch s {
	case PeerLinked:
		return 0
	case PeerSuspected:
		return 1
	case PeerDoubting:
		return 2
	case PeerDoubted, PeerLeft:
		return 3
	case PeerLeftLost, PeerFailed:
		return 4
	}
	return 5
}
