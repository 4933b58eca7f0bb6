package raftlog

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// A strictJournal is a journal that refuses invalid states.
type strictJournal struct{ journal }

func (b *strictJournal) Check(state []byte) error {
	if len(state) > 0 {
		return errors.New("not a state")
	}
	return nil
}

// rogueMessage returns a message with numbers that a holder of the seeds' token could
// send.
func rogueMessage(rng *rand.Rand, from, to uint64) *raftpb.Message {
	far := []uint64{0, 1, 2, 3, 5, 8, 1000, 1 << 40, math.MaxUint64 - 1, math.MaxUint64}
	pick := func() *uint64 { return proto.Uint64(far[rng.IntN(len(far))]) }
	m := &raftpb.Message{
		Type: raftpb.MessageType(rng.IntN(len(raftpb.MessageType_name))).Enum(), From: &from, To: &to,
		Term: pick(), LogTerm: pick(), Index: pick(), Commit: pick(), Vote: pick(), RejectHint: pick(), Reject: proto.Bool(rng.IntN(2) == 0),
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		for i := range uint64(rng.IntN(4)) {
			m.Entries = append(m.Entries, &raftpb.Entry{Term: pick(), Index: proto.Uint64(m.GetIndex() + 1 + i), Data: []byte("rogue")})
		}
	case raftpb.MsgSnap:
		m.Snapshot = &raftpb.Snapshot{
			Data:     []byte("rogue"),
			Metadata: &raftpb.SnapshotMetadata{Index: pick(), Term: pick(), ConfState: &raftpb.ConfState{Voters: []uint64{from, to, *pick()}}},
		}
	}
	return m
}

// No message of another seed makes a seed panic or lose committed entries. If the seed
// ends, it returns the reason, and its stored state stays valid.
func TestRogueMessages(t *testing.T) {
	seeds := []uint64{1 << 40, 2 << 40, 3 << 40}
	for trial := range uint64(20) {
		rng := rand.New(rand.NewPCG(trial, 9))
		dir := t.TempDir()
		open := func() (*Log, *strictJournal) {
			b := new(strictJournal)
			l, err := Open(consensus.Config{Self: seeds[0], Seeds: seeds, Dir: dir, StateMachine: b, Send: func(uint64, []byte) {}})
			if err != nil {
				t.Fatalf("trial %d: open: %v", trial, err)
			}
			return l, b
		}
		l, b := open()
		agreed := agree(t, l, seeds)
		for range 500 {
			m, err := proto.Marshal(rogueMessage(rng, seeds[1+rng.IntN(2)], seeds[0]))
			if err != nil {
				t.Fatal(err)
			}
			l.Step(seeds[1], m)
			l.Step(seeds[2], m)
			if err := l.Err(); err != nil {
				if !errors.Is(err, ErrLost) {
					t.Fatalf("trial %d: %v", trial, err)
				}
				l, b = open()
			}
		}
		l.Close()
		if lines, _, _ := b.state(); len(lines) > 0 && !slices.Equal(lines[:1][0], agreed) {
			t.Errorf("trial %d: the first change is %q, %q was committed", trial, lines[0], agreed)
		}
		l, _ = open()
		l.Close()
	}
}

// agree commits a change on a seed, with the test as the leader.
func agree(t *testing.T, l *Log, seeds []uint64) []byte {
	t.Helper()
	change := []byte("agreed")
	last, err := l.memory.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	term, err := l.memory.Term(last)
	if err != nil {
		t.Fatal(err)
	}
	m, err := proto.Marshal(&raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &seeds[1], To: &seeds[0], Term: proto.Uint64(term + 1), LogTerm: &term, Index: &last,
		Commit:  proto.Uint64(last + 1),
		Entries: []*raftpb.Entry{{Term: proto.Uint64(term + 1), Index: proto.Uint64(last + 1), Data: change}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Step(seeds[1], m); err != nil {
		t.Fatal(err)
	}
	b := l.cfg.StateMachine.(*strictJournal)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if lines, _, _ := b.state(); len(lines) > 0 {
			return change
		}
		if time.Since(began) > time.Minute {
			t.Fatal(fmt.Errorf("the change was not applied within a minute"))
		}
	}
}
