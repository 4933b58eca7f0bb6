package raftlog

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// follow tells the Machine that another seed leads, or none does.
func (l *Log) follow() {
	s := l.raft.BasicStatus()
	if s.RaftState == raft.StateLeader && l.leader == l.cfg.Self && l.term == s.GetTerm() {
		return
	}
	leader := seedOf(s.Lead)
	if leader == l.cfg.Self && s.Lead != l.self {
		leader = raft.None // an earlier member of this seed
	}
	// A leader has made a change of its own term, an empty one. Changes before that may be
	// of a time long past.
	if at, err := l.memory.Term(l.applied); leader == l.cfg.Self || err != nil || at != s.GetTerm() {
		leader = raft.None
	}
	l.tell(leader, s.GetTerm())
}

// lead tells the Machine that this seed leads, when an entry of its own term is
// agreed on: then there is none before it that the Machine has not seen.
func (l *Log) lead(e *raftpb.Entry) {
	if s := l.raft.BasicStatus(); s.RaftState == raft.StateLeader && e.GetTerm() == s.GetTerm() {
		l.tell(l.cfg.Self, s.GetTerm())
	}
}

func (l *Log) tell(leader, term uint64) {
	if leader == l.leader && (term == l.term || leader == raft.None) {
		return
	}
	l.leader, l.term = leader, term
	l.cfg.Machine.Lead(leader, term)
}
