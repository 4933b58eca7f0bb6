package membership

import (
	"os"
	"slices"
	"testing"
)

// check checks a terminal state: nothing is in flight.
func (s *search) check(m modelState) {
	for set := range 1 << s.ranks {
		s.checkComm(&m, set)
	}
	for at := range s.ranks {
		for peer := range s.ranks {
			if at != peer {
				s.checkPair(&m, at, peer)
			}
		}
	}
	s.checkAdoption(m)
}

// checkComm checks the communicator of a set of ranks. Each live rank of it waits for each of
// the others.
func (s *search) checkComm(m *modelState, set int) {
	for at := range s.ranks {
		if set>>at&1 == 0 || m.gone[at] || m.moved[at] || s.ended(m, at, set) {
			continue
		}
		for peer := range s.ranks {
			switch {
			case peer == at || set>>peer&1 == 0:
			case m.gone[peer] && !m.ops.has(at, peer):
				s.failf(m, "rank %d waits for rank %d, which is gone", at, peer)
			case !m.gone[peer] && s.ended(m, peer, set) && !m.ops.has(at, peer):
				s.failf(m, "rank %d waits for rank %d, which has ended the communicator of ranks %b", at, peer, set)
			}
		}
	}
}

// checkPair checks the effects of the end of a rank on a live one.
func (s *search) checkPair(m *modelState, at, peer int) {
	if m.gone[at] || m.moved[at] {
		return
	}
	lost := m.sawLost.has(at, peer) || m.sawClosed.has(at, peer)
	if lost != m.reportedLost.has(at, peer) {
		s.failf(m, "rank %d has lost rank %d: %v; reported to the seed: %v", at, peer, lost, !lost)
	}
	if bye := m.sawBye.has(at, peer); bye != m.reportedLeft.has(at, peer) {
		s.failf(m, "rank %d has read the goodbye of rank %d: %v; reported to the seed: %v", at, peer, bye, !bye)
	}
	lostBy := m.sawLost.column(peer, s.ranks) + m.sawClosed.column(peer, s.ranks)
	if lostBy == 0 && m.notified.has(at, peer) {
		s.failf(m, "rank %d notifies the failure of rank %d, which no rank has lost", at, peer)
	}
	if self := m.sawLost.column(at, s.ranks); lostBy == 0 && self == 0 && m.comms.has(at, peer) {
		s.failf(m, "rank %d has ended communicators with rank %d, and no rank has lost either", at, peer)
	}
	if !m.gone[peer] && !lost && m.sawLost.column(peer, s.ranks) == 0 && m.notified.has(at, peer) {
		s.failf(m, "rank %d takes rank %d for failed, which is alive and has closed its link to another", at, peer)
	}
	if len(s.incidents) == 1 && (m.killed[peer] || m.gone[peer] && lostBy > 0) && !m.notified.has(at, peer) {
		s.failf(m, "rank %d does not notify the failure of rank %d", at, peer)
	}
	if m.comms.has(at, peer) != m.refused.has(at, peer) {
		s.failf(m, "rank %d has ended its communicators with rank %d and makes new ones", at, peer)
	}
}

// checkAdoption checks the next view: its ranks trust each other, and have no link to
// others.
func (s *search) checkAdoption(m modelState) {
	out := s.removed(&m)
	for at := range s.ranks {
		if slices.Contains(out, at) {
			continue
		}
		if !m.moved[at] {
			s.move(&m, at)
		}
		for peer := range s.ranks {
			switch in := !slices.Contains(out, peer); {
			case at == peer:
			case in && (m.states[at][peer] != PeerLinked || m.refused.has(at, peer)):
				s.failf(&m, "rank %d is not linked to rank %d in the next view", at, peer)
			case !in && (m.states[at][peer] != PeerRemoved || !m.down.has(at, peer)):
				s.failf(&m, "rank %d has a link to rank %d, which is not in the next view", at, peer)
			}
			if e := s.event(PeerReport{Epoch: 1}, 2); e != NoEvent {
				s.failf(&m, "a report about an earlier view has an effect")
			}
		}
	}
}

// scenarios returns the scenarios that are always searched, or all of them.
func scenarios(all bool) (list []scenario) {
	for n := 2; n <= modelRanks; n++ {
		last := n - 1
		single := []incident{{kind: leaves, rank: last}, {kind: dies, rank: last}, {kind: isCut, rank: 0, other: last}}
		for _, f := range single {
			list = append(list, scenario{ranks: n, incidents: []incident{f}, copies: 1, adopters: 1})
			if n == modelRanks && f.kind != isCut { // A lost report needs a third rank to repeat it.
				list = append(list, scenario{ranks: n, incidents: []incident{f}, losses: 1, copies: 1})
			}
		}
		pairs := [][]incident{
			{{kind: isCut, rank: 0, other: last}, {kind: dies, rank: last}},
			{{kind: isCut, rank: 0, other: last}, {kind: leaves, rank: last}},
		}
		if n > 2 {
			for _, a := range []incidentKind{dies, leaves} {
				pairs = append(pairs, []incident{{kind: a, rank: last}, {kind: isCut, rank: 0, other: 1}})
				pairs = append(pairs, []incident{{kind: a, rank: last}, {kind: dies, rank: last - 1}})
				pairs = append(pairs, []incident{{kind: a, rank: last}, {kind: leaves, rank: last - 1}})
				if all || n < modelRanks || a == dies {
					pairs = append(pairs, []incident{{kind: isCut, rank: 0, other: last}, {kind: a, rank: 1}})
				}
			}
		}
		if all || n < modelRanks {
			pairs = append(pairs, []incident{{kind: isCut, rank: last, other: 0}, {kind: leaves, rank: last}})
		}
		for _, p := range pairs {
			c := scenario{ranks: n, incidents: p}
			if all || n < modelRanks {
				c.copies, c.adopters = 1, 1
			} else if p[0].kind == dies {
				c.adopters = 1
			}
			list = append(list, c)
		}
	}
	return list
}

// All orders of events of all scenarios end in a good state. PEERSTATES=all searches
// larger scenarios, for two minutes.
func TestPeerStates(t *testing.T) {
	type step struct {
		state PeerState
		event PeerEvent
	}
	taken, total := make(map[step]bool), 0
	watched := soundTable()
	watched.next = func(s PeerState, e PeerEvent) (PeerState, PeerEffects) {
		taken[step{s, e}] = true
		return s.Next(e)
	}
	for _, c := range scenarios(os.Getenv("PEERSTATES") == "all") {
		states, err := c.run(watched)
		if err != nil {
			t.Error(err)
		}
		total += states
		t.Logf("%8d states: %v", states, c)
	}
	t.Logf("%8d states", total)
	for s := range peerStates {
		for e := LinkLost; e <= DoubtsSelf; e++ {
			if s == PeerDoubting && e == Goodbye || !s.IsMember() {
				continue // A peer that doubts this node leaves without a goodbye, or in a later view. TestPeers has the peers that join.
			}
			if next, effects := s.Next(e); (next != s || effects != 0) && !taken[step{s, e}] {
				t.Errorf("no scenario has event %d for a peer that is %v", e, s)
			}
		}
	}
}

// A mutant is a table with a planted fault.
type mutant struct {
	name string
	table
}

// mutants returns tables with one planted fault each, most of them a missing effect.
func mutants() (list []mutant) {
	add := func(name string, change func(s PeerState, e PeerEvent, next PeerState, effects PeerEffects) (PeerState, PeerEffects)) {
		m := mutant{name, soundTable()}
		m.next = func(s PeerState, e PeerEvent) (PeerState, PeerEffects) {
			next, effects := s.Next(e)
			return change(s, e, next, effects)
		}
		list = append(list, m)
	}
	for name, effect := range map[string]PeerEffects{
		"ReportLost": ReportLost, "ReportLeft": ReportLeft, "NotifyFailed": NotifyFailed, "NotifyLost": NotifyLost,
		"TellLost": TellLost, "TellClosed": TellClosed, "TellPeer": TellPeer, "EndComms": EndComms, "RevokeComms": RevokeComms,
		"EndOperations": EndOperations, "Trust": Trust, "DropLink": DropLink,
	} {
		add("without "+name, func(_ PeerState, _ PeerEvent, next PeerState, effects PeerEffects) (PeerState, PeerEffects) {
			return next, effects &^ effect
		})
	}
	at := func(name string, state PeerState, event PeerEvent, next PeerState, effects PeerEffects) {
		add(name, func(s PeerState, e PeerEvent, n PeerState, f PeerEffects) (PeerState, PeerEffects) {
			if s == state && e == event {
				return next, effects
			}
			return n, f
		})
	}
	const failure = ReportLost | NotifyFailed | TellLost | EndComms
	at("a peer that leaves has failed", PeerLinked, Goodbye, PeerFailed, failure)
	at("reports about a peer that has left are ignored", PeerLeft, ReportedLost, PeerLeft, 0)
	at("closed links of a peer that has left are ignored", PeerLeft, ReportedClosed, PeerLeft, 0)
	at("reports are not repeated", PeerLinked, ReportedLost, PeerDoubted, NotifyFailed|TellPeer|EndComms)
	at("reports are repeated whenever they come", PeerDoubted, ReportedLost, PeerDoubted, TellLost)
	at("a closed link is a failure", PeerLinked, LinkClosed, PeerFailed, failure)
	at("a closed link is not reported to other nodes", PeerLinked, LinkClosed, PeerFailed, failure&^TellLost)
	at("a suspicion is forgotten at the goodbye", PeerSuspected, Goodbye, PeerLeft, ReportLeft|EndOperations)
	at("a suspicion is a failure", PeerLinked, ReportedClosed, PeerDoubted, NotifyFailed|TellClosed|EndComms)
	at("a doubt is reported to the seed", PeerLinked, ReportedLost, PeerDoubted, failure|TellPeer)
	at("the end of a doubted link is not reported", PeerDoubted, LinkLost, PeerFailed, EndComms)
	at("the end of a doubted link is a second failure", PeerDoubted, LinkLost, PeerFailed, failure)
	at("the goodbye of a doubted peer ends the doubt", PeerDoubted, Goodbye, PeerLeft, ReportLeft|EndOperations|Trust)
	at("a doubt outlives the view", PeerDoubted, AdoptedIn, PeerDoubted, 0)
	at("doubts of others about this node are ignored", PeerLinked, DoubtsSelf, PeerLinked, 0)
	at("a failure is forgotten when another node reports it", PeerFailed, ReportedLost, PeerDoubted, 0)
	at("communicators with removed peers end on this node alone", PeerLinked, AdoptedOut, PeerRemoved, EndComms|DropLink)
	stale := mutant{"reports about earlier views count", soundTable()}
	stale.event = func(r PeerReport, _ uint64) PeerEvent { return r.Event(0) }
	closed := mutant{"every report is one of a lost link", soundTable()}
	closed.event = func(r PeerReport, epoch uint64) PeerEvent {
		r.Closed = false
		return r.Event(epoch)
	}
	return append(list, stale, closed)
}

// Each planted fault is found in some scenario.
func TestPeerStateMutants(t *testing.T) {
	for _, m := range mutants() {
		var found error
		for _, c := range scenarios(false) {
			if _, found = c.run(m.table); found != nil {
				break
			}
		}
		if found == nil {
			t.Errorf("%s: not found", m.name)
		} else {
			t.Logf("%s: %v", m.name, found)
		}
	}
}
