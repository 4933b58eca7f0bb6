package raftlog

import (
	"go.etcd.io/raft/v3"
)

// reportLeader tells the Machine which seed leads. The entries before the leader's first
// one may be of a time long past, so a leader counts from the moment when that entry, or a
// later one of its term, is applied. Entries that this seed had when it was opened are of
// the past in any case.
func (l *Log) reportLeader() {
	s := l.raft.BasicStatus()
	leader := seedOf(s.Lead)
	if leader == l.cfg.Self && s.Lead != l.self {
		leader = raft.None // an earlier member of this seed
	}
	if at, err := l.memory.Term(l.applied); err != nil || at != s.GetTerm() || l.applied < l.opened {
		leader = raft.None
	}
	if leader == l.leader && (s.GetTerm() == l.term || leader == raft.None) {
		return
	}
	l.leader, l.term = leader, s.GetTerm()
	l.cfg.StateMachine.Lead(leader, s.GetTerm())
}

// reportProgress tells the Machine of a leader which seeds lack changes that it has made.
func (l *Log) reportProgress() {
	if l.leader != l.cfg.Self || l.raft.BasicStatus().RaftState != raft.StateLeader {
		return
	}
	current := make(map[uint64]bool)
	for member, progress := range l.raft.Status().Progress {
		current[seedOf(member)] = current[seedOf(member)] || progress.Match >= l.applied
	}
	var behind []uint64
	for _, seed := range l.cfg.Seeds {
		if !current[seed] {
			behind = append(behind, seed)
		}
	}
	l.cfg.StateMachine.Progress(behind)
}
