package raftlog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// A seed without its state has also lost its votes and the entries that it has acknowledged. So
// it does not return as the same member of the log but as a new one: it asks the leader, which
// removes the old member, adds the new one as a learner, and promotes it to a voter when it has
// caught up. Each step is committed by a majority of the voters without the old member, so no
// election depends on a vote that the old member has cast and the new one does not know.
//
// The ID of a member has the ID of its seed in the upper half. The lower half is unique among
// the members of the seed: 0 for the first one, random for others.
const generationMask = 1<<32 - 1

func seedOf(member uint64) uint64 { return member &^ generationMask }

func newMember(seed uint64) uint64 {
	var b [4]byte
	rand.Read(b[:])
	return seed | uint64(max(1, binary.LittleEndian.Uint32(b[:])))
}

// checkConfig reports why a configuration is invalid.
func checkConfig(cfg *consensus.Config) error {
	if cfg.Self == 0 || !slices.Contains(cfg.Seeds, cfg.Self) {
		return fmt.Errorf("seed %x is not among the seeds %x", cfg.Self, cfg.Seeds)
	}
	for _, s := range cfg.Seeds {
		if seedOf(s) != s || s == 0 {
			return fmt.Errorf("seed ID %x: the upper half must not be 0, and the lower half must be 0", s)
		}
	}
	if cfg.ForgetState && len(cfg.Seeds) == 1 {
		return errors.New("ForgetState needs other seeds to learn the state from: start a new world in an empty state directory")
	}
	return nil
}

// joinTicks is the interval at which a member without a vote requests one, and at which the
// leader repeats the proposal of a change of the members.
const joinTicks = electionTicks

// joining holds the requests of members for a vote.
type joining struct {
	ticks    int                // until the next request or proposal of this seed
	requests map[uint64]request // by seed
}

// A request expires. A later leader may admit the member, and the seed may then become
// another member, which must not be removed because of this request.
type request struct {
	member uint64
	ticks  int // until it expires
}

func (j *joining) ask(member uint64) {
	if j.requests == nil {
		j.requests = make(map[uint64]request)
	}
	j.requests[seedOf(member)] = request{member, 2 * joinTicks}
}

// tick removes expired requests, and returns the members of the others.
func (j *joining) tick() (members []uint64) {
	for _, seed := range slices.Sorted(maps.Keys(j.requests)) {
		r := j.requests[seed]
		if r.ticks--; r.ticks <= 0 {
			delete(j.requests, seed)
			continue
		}
		j.requests[seed] = r
		members = append(members, r.member)
	}
	return members
}

// isJoin reports whether a message is the request of a member for a vote. It has the form of a
// proposal, which seeds do not forward to each other.
func isJoin(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgProp && m.GetTerm() == 0 && m.GetFrom() != seedOf(m.GetFrom()) && len(m.GetEntries()) == 0
}

func (l *Log) votes() bool { return slices.Contains(l.members.GetVoters(), l.self) }

// isMember reports whether this seed is a voter or a learner.
func (l *Log) isMember() bool { return l.votes() || slices.Contains(l.members.GetLearners(), l.self) }

// join requests a vote from all other seeds. Only the leader answers.
func (l *Log) join() {
	if l.votes() {
		return
	}
	if l.joining.ticks--; l.joining.ticks > 0 {
		return
	}
	l.joining.ticks = joinTicks
	for _, seed := range l.cfg.Seeds {
		if seed == l.cfg.Self {
			continue
		}
		b, err := proto.Marshal(&raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &l.self, To: &seed})
		if err == nil {
			l.cfg.Send(seed, b)
		}
	}
}

// admit proposes the next change for a member that has requested a vote, if this seed is the
// leader. One change at a time is in flight, and it depends only on applied ones, so a new
// leader can continue.
func (l *Log) admit() error {
	if l.raft.BasicStatus().RaftState != raft.StateLeader {
		clear(l.joining.requests)
		return nil
	}
	members := l.joining.tick()
	if l.joining.ticks--; l.joining.ticks > 0 {
		return nil
	}
	for _, member := range members {
		change := l.nextChange(member)
		if change == nil {
			continue
		}
		l.cfg.Logger.Info("seed without state joins", "member", member, "change", change.GetType(), "of", change.GetNodeId())
		l.joining.ticks = joinTicks
		if err := l.raft.ProposeConfChange(change); err != nil && !errors.Is(err, raft.ErrProposalDropped) {
			return fmt.Errorf("proposing a change of the members: %w", err)
		}
		break
	}
	return nil
}

// nextChange returns the next change that leads a member to a vote, or nil if none is due.
func (l *Log) nextChange(member uint64) *raftpb.ConfChange {
	change := func(t raftpb.ConfChangeType, of uint64) *raftpb.ConfChange {
		return &raftpb.ConfChange{Type: t.Enum(), NodeId: &of}
	}
	if slices.Contains(l.members.GetVoters(), member) {
		return nil
	}
	for _, old := range slices.Concat(l.members.GetVoters(), l.members.GetLearners()) {
		if seedOf(old) == seedOf(member) && old != member {
			return change(raftpb.ConfChangeRemoveNode, old)
		}
	}
	if !slices.Contains(l.members.GetLearners(), member) {
		return change(raftpb.ConfChangeAddLearnerNode, member)
	}
	if l.hasCaughtUp(member) {
		return change(raftpb.ConfChangeAddNode, member)
	}
	return nil
}

// hasCaughtUp reports whether a learner has all committed entries.
func (l *Log) hasCaughtUp(member uint64) bool {
	status := l.raft.Status()
	progress, ok := status.Progress[member]
	return ok && progress.RecentActive && progress.Match >= status.GetCommit()
}

// checkEntries returns an error for entries with changes of the members that no seed
// proposes. Once committed, such an entry would end each seed that applies it, after
// every restart.
func (l *Log) checkEntries(entries []*raftpb.Entry) error {
	for _, e := range entries {
		if e.GetType() == raftpb.EntryNormal {
			continue
		}
		change, err := parseChange(e)
		if err == nil {
			err = l.checkMember(change)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
	}
	return nil
}

// parseChange returns the change of the members in an entry.
func parseChange(e *raftpb.Entry) (*raftpb.ConfChange, error) {
	change := new(raftpb.ConfChange)
	if err := proto.Unmarshal(e.GetData(), change); err != nil || e.GetType() != raftpb.EntryConfChange {
		return nil, errors.New("change of the members that no seed proposes")
	}
	return change, nil
}

// checkMember returns an error for a change that no seed proposes, regardless of the
// members.
func (l *Log) checkMember(change *raftpb.ConfChange) error {
	if id := change.GetNodeId(); !slices.Contains(l.cfg.Seeds, seedOf(id)) {
		return fmt.Errorf("member %x belongs to none of the seeds", id)
	}
	switch change.GetType() {
	case raftpb.ConfChangeAddNode, raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeRemoveNode:
		return nil
	}
	return fmt.Errorf("change %v of member %x", change.GetType(), change.GetNodeId())
}

// changeMembers applies a change of the members.
func (l *Log) changeMembers(e *raftpb.Entry) error {
	change, err := parseChange(e)
	if err != nil {
		return fmt.Errorf("%w: entry %d: %w", ErrDamaged, e.GetIndex(), err)
	}
	if err := l.checkChange(change); err != nil {
		return fmt.Errorf("%w: entry %d: %w", ErrDamaged, e.GetIndex(), err)
	}
	voted := l.votes()
	l.members = l.raft.ApplyConfChange(change)
	l.joining.ticks = 0
	if change.GetNodeId() == l.self && change.GetType() == raftpb.ConfChangeRemoveNode {
		return ErrLost // Another member has replaced this one.
	}
	if l.votes() && !voted {
		l.cfg.Logger.Info("this seed has caught up, and votes")
	}
	return nil
}

// checkChange returns an error for a change that no leader proposes. Raft would panic on some
// of them.
func (l *Log) checkChange(change *raftpb.ConfChange) error {
	if err := l.checkMember(change); err != nil {
		return err
	}
	id, t := change.GetNodeId(), change.GetType()
	switch {
	case t == raftpb.ConfChangeAddNode || t == raftpb.ConfChangeAddLearnerNode && !slices.Contains(l.members.GetVoters(), id):
		return nil
	case t == raftpb.ConfChangeRemoveNode && slices.ContainsFunc(l.members.GetVoters(), func(v uint64) bool { return v != id }):
		return nil
	}
	return fmt.Errorf("change %v of member %x", t, id)
}

// misdirected handles a message to another member of this seed. If an up-to-date leader
// knows a later member than this one, this seed has returned with an old directory, or
// has lost its own.
func (l *Log) misdirected(m *raftpb.Message) error {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() >= l.raft.BasicStatus().GetTerm() && l.isMember() {
			return ErrLost
		}
	}
	return nil
}
