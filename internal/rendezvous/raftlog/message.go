package raftlog

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

const (
	// termLeap bounds the term of a message above the term of this seed. Terms grow by
	// one in each election, and a seed without connections does not raise its own. A
	// forged term far ahead would raise the term of all seeds to where no election can
	// follow.
	termLeap = 1 << 20
	// indexMax bounds the index of an entry in a message. Raft panics when arithmetic
	// on indexes overflows.
	indexMax = 1 << 60
)

// refuse reports why a message is invalid. Raft trusts the numbers in messages, and
// panics or forgets committed entries on impossible ones; but each holder of the seeds'
// token can send messages. last is the index of the last entry of this log.
func (l *Log) refuse(m *raftpb.Message, last uint64) error {
	status := l.raft.BasicStatus()
	switch {
	case m.GetTerm() > status.GetTerm()+termLeap:
		return fmt.Errorf("%v of term %d, at most %d is expected", m.GetType(), m.GetTerm(), status.GetTerm()+termLeap)
	case m.GetLogTerm() > m.GetTerm():
		return fmt.Errorf("%v of term %d about an entry of the later term %d", m.GetType(), m.GetTerm(), m.GetLogTerm())
	case m.GetIndex() > indexMax:
		return fmt.Errorf("%v about entry %d, at most %d is possible", m.GetType(), m.GetIndex(), uint64(indexMax))
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		return l.refuseEntries(m, status.GetCommit())
	case raftpb.MsgAppResp:
		if m.GetIndex() > last {
			return fmt.Errorf("acknowledges entry %d, the last one is %d", m.GetIndex(), last)
		}
		if m.GetReject() && m.GetRejectHint() > m.GetIndex() {
			return fmt.Errorf("rejects entry %d and hints at the later entry %d", m.GetIndex(), m.GetRejectHint())
		}
	case raftpb.MsgSnap:
		return l.refuseSnapshot(m)
	}
	return nil
}

// refuseEntries refuses entries that are not consecutive, or that contradict committed
// entries.
func (l *Log) refuseEntries(m *raftpb.Message, commit uint64) error {
	term := m.GetLogTerm()
	for i, e := range m.GetEntries() {
		if want := m.GetIndex() + 1 + uint64(i); e.GetIndex() != want {
			return fmt.Errorf("entry %d where entry %d follows", e.GetIndex(), want)
		}
		if e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("entry %d of term %d, after one of term %d and in a message of term %d", e.GetIndex(), e.GetTerm(), term, m.GetTerm())
		}
		term = e.GetTerm()
		if e.GetIndex() > commit {
			continue
		}
		ours, err := l.memory.Entries(e.GetIndex(), e.GetIndex()+1, math.MaxUint64)
		if err != nil {
			continue // It is part of the snapshot.
		}
		if ours[0].GetTerm() != term {
			return fmt.Errorf("entry %d of term %d contradicts the committed one of term %d", e.GetIndex(), term, ours[0].GetTerm())
		}
		// Logs of two worlds may have the same terms.
		if ours[0].GetType() != e.GetType() || !bytes.Equal(ours[0].GetData(), e.GetData()) {
			return fmt.Errorf("entry %d of term %d contradicts the committed one of the same term: a state directory was lost or exchanged", e.GetIndex(), term)
		}
	}
	return nil
}

// refuseSnapshot refuses a snapshot with impossible numbers, members of unknown seeds,
// or a state that the state machine refuses.
func (l *Log) refuseSnapshot(m *raftpb.Message) error {
	data := m.GetSnapshot().GetMetadata()
	if data.GetIndex() == 0 || data.GetIndex() > indexMax || data.GetTerm() == 0 || data.GetTerm() > m.GetTerm() {
		return fmt.Errorf("snapshot of entry %d and term %d in a message of term %d", data.GetIndex(), data.GetTerm(), m.GetTerm())
	}
	conf := data.GetConfState()
	for _, ids := range [][]uint64{conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext()} {
		for _, id := range ids {
			if !slices.Contains(l.cfg.Seeds, seedOf(id)) {
				return fmt.Errorf("snapshot with member %x, which belongs to none of the seeds %x", id, l.cfg.Seeds)
			}
		}
	}
	if err := l.cfg.StateMachine.Check(m.GetSnapshot().GetData()); err != nil {
		return fmt.Errorf("snapshot of entry %d: %w", data.GetIndex(), err)
	}
	return nil
}
