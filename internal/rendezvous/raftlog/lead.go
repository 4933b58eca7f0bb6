package raftlog

import (
	"go.etcd.io/raft/v3"
)

// reportLeader reports the leader to the state machine. The entries before those of its term
// may be much older, so a leader counts only once an entry of its term is applied. Entries that
// were in the log when it was opened are always old.
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

// reportProgress reports to the leader's state machine which seeds lack applied
// changes.
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
