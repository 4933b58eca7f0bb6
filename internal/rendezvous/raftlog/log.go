// Package raftlog replicates a log on several seeds, so that changes on which a majority has
// agreed outlive any of them.
//
// Most callers call Open with a Machine, hand messages of other seeds to Step, and
// call Propose when Machine.Lead has told them that this seed leads. A proposed change
// either comes back to the Machines of all seeds by Apply, in the same order everywhere, or
// is lost, as when this seed ceases to lead; Lead tells that too.
//
// The log is that of Raft (Ongaro and Ousterhout, "In Search of an Understandable
// Consensus Algorithm", USENIX ATC 2014), by go.etcd.io/raft. It is kept in a
// directory: a seed that is started again has everything that it ever agreed to, or Open
// returns a FileError. A seed that has lost its directory must not vote as if it had it:
// Config.ForgetState has it learn the log first. A seed that was started without ends with
// ErrLost if the leader shows that it lacks entries.
//
// A Log may be used by several goroutines. It calls a Machine on one of its own, save
// for a Restore by Open.
package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

const (
	// tick is the time between two ticks of Raft: a leader shows its life once in
	// each, and another seed stands for election after ten to twenty without.
	tick          = 100 * time.Millisecond
	electionTicks = 10
	// campaignMin is how long a seed waits at the least before it stands for election
	// once it has heard that the leader has died, and at the most twice that and more: if
	// all stood at once, none would have most votes.
	campaignMin = 20 * time.Millisecond
	campaignMax = 150 * time.Millisecond
	// keepEntries is how many changes are kept before a snapshot takes their place.
	keepEntries = 256
	// messageBytesMax bounds the entries of one message.
	messageBytesMax = 256 << 10
	inflightMax     = 64
)

// ErrClosed says that a Log was closed.
var ErrClosed = errors.New("closed")

// ErrDamaged says that the log of a seed differs from the one that it had, or from that of
// the others.
var ErrDamaged = errors.New("the log of the seeds does not fit together: a state directory was lost, mixed up or damaged")

// ErrLost says that a seed had more of the log once than it has now.
var ErrLost = errors.New("the state directory of this seed is not the one that it had: the others know of changes that it has agreed to and lacks. Give it back its directory, or empty it and start the seed with --forget-state, so that it learns the state from the others before it votes")

// A Log is one seed's part in the log.
type Log struct {
	cfg    consensus.Config
	raft   *raft.RawNode
	memory *raft.MemoryStorage // the log as Raft reads it
	disk   *disk               // the same, and kept

	self     uint64            // this seed as a member of the log
	members  *raftpb.ConfState // all members, as of the last change that was applied
	joining  joining           // seeds that have forgotten their state
	applied  uint64            // index of the last change that the Machine has made
	opened   uint64            // index of the last entry that was there when the log was opened, and still is
	leader   uint64            // as the Machine knows it
	term     uint64
	campaign *time.Timer // when to stand for election; stopped: not before it is time anyway

	inbox chan *raftpb.Message
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
	err   error // why the Log has ended, before done is closed

	mu    sync.Mutex // guards the rest
	queue []proposal
	gone  []uint64
	wake  chan struct{} // one token: there is something in them
}

// A proposal is a change that the leader of a term has asked for.
type proposal struct {
	term   uint64
	change []byte
}

// Open opens the log of a seed, and makes it if there is none.
func Open(cfg consensus.Config) (*Log, error) {
	if err := checkConfig(&cfg); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	disk, contents, err := openDisk(&cfg)
	if err != nil {
		return nil, err
	}
	l := &Log{
		cfg: cfg, disk: disk, memory: raft.NewMemoryStorage(), self: contents.member, campaign: time.NewTimer(time.Hour),
		inbox: make(chan *raftpb.Message), stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	l.campaign.Stop()
	if err := l.start(contents); err != nil {
		return nil, errors.Join(err, disk.close())
	}
	go l.run()
	return l, nil
}

// start has the Machine be where the log was when it was last kept.
func (l *Log) start(c *contents) (err error) {
	defer recoverRaft(&err)
	snapshot := &c.snapshot
	if err := errors.Join(l.memory.ApplySnapshot(snapshot), l.memory.SetHardState(&c.hard), l.memory.Append(c.entries)); err != nil {
		return err
	}
	l.members = snapshot.GetMetadata().GetConfState()
	if len(snapshot.GetData()) > 0 {
		if err := l.cfg.StateMachine.Restore(snapshot.GetData()); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	}
	l.applied = snapshot.GetMetadata().GetIndex()
	if l.opened, err = l.memory.LastIndex(); err != nil {
		return err
	}
	l.raft, err = raft.NewRawNode(&raft.Config{
		ID: l.self, ElectionTick: electionTicks, HeartbeatTick: 1, Storage: l.memory, Applied: l.applied,
		MaxSizePerMsg: messageBytesMax, MaxInflightMsgs: inflightMax, CheckQuorum: true, PreVote: true,
		DisableProposalForwarding: true, Logger: logger{l.cfg.Logger},
	})
	return err
}

// Propose asks for a change in a term in which this seed leads. It does not wait.
func (l *Log) Propose(term uint64, change []byte) {
	l.mu.Lock()
	l.queue = append(l.queue, proposal{term, change})
	l.mu.Unlock()
	l.notify()
}

// Gone says that another seed has died. If it led, others need not wait for signs of
// life before they stand for election.
func (l *Log) Gone(seed uint64) {
	l.mu.Lock()
	l.gone = append(l.gone, seed)
	l.mu.Unlock()
	l.notify()
}

func (l *Log) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Step takes a message that another seed has sent. An error says that it makes no
// sense, or that the Log has ended.
func (l *Log) Step(from uint64, message []byte) error {
	m := new(raftpb.Message)
	if err := proto.Unmarshal(message, m); err != nil {
		return fmt.Errorf("not a message of the log: %w", err)
	}
	if err := l.check(from, m); err != nil {
		return err
	}
	select {
	case l.inbox <- m:
		return nil
	case <-l.done:
		return l.Err()
	}
}

// check refuses messages that no seed sends to another.
func (l *Log) check(from uint64, m *raftpb.Message) error {
	if seedOf(m.GetFrom()) != from || seedOf(m.GetTo()) != l.cfg.Self || from == l.cfg.Self || !slices.Contains(l.cfg.Seeds, from) {
		return fmt.Errorf("message of seed %x to %x came from seed %x to %x", m.GetFrom(), m.GetTo(), from, l.cfg.Self)
	}
	if isJoin(m) {
		return nil
	}
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgSnap:
		if m.GetTerm() > 0 && len(m.GetResponses()) == 0 {
			return l.checkEntries(m.GetEntries())
		}
	}
	return fmt.Errorf("seed %x sent a %v of term %d", from, m.GetType(), m.GetTerm())
}

// Done is closed when the Log has ended, and Err says why then.
func (l *Log) Done() <-chan struct{} { return l.done }

// Err is why the Log has ended; nil: it has not.
func (l *Log) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Close ends the Log, and waits for the Machine.
func (l *Log) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	return nil
}

// run is the goroutine that Raft runs on.
func (l *Log) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer l.campaign.Stop()
	err := l.serve(ticker.C)
	l.err = ErrClosed
	if closing := l.disk.close(); err != ErrClosed || closing != nil {
		l.err = errors.Join(err, closing)
		l.cfg.Logger.Error("the log of the seeds has ended", "err", l.err)
	}
	close(l.done)
}

// serve runs Raft until an error.
func (l *Log) serve(ticks <-chan time.Time) (err error) {
	defer recoverRaft(&err)
	if len(l.cfg.Seeds) == 1 {
		err = l.raft.Campaign() // There is nobody to wait for.
	}
	for err == nil {
		for err == nil && l.raft.HasReady() {
			err = l.handle(l.raft.Ready())
		}
		if err == nil {
			err = l.next(ticks)
		}
	}
	return err
}

// recoverRaft makes an error of a panic of Raft, which finds in this way that logs do not fit
// together. Others go on.
func recoverRaft(err *error) {
	switch r := recover().(type) {
	case nil:
	case raftPanic:
		*err = fmt.Errorf("%w: %s", ErrDamaged, string(r))
	default:
		panic(r)
	}
}

// next waits for the next input of Raft.
func (l *Log) next(ticks <-chan time.Time) error {
	select {
	case <-ticks:
		l.raft.Tick()
		l.join()
		l.reportProgress()
		return l.admit()
	case m := <-l.inbox:
		return l.step(m)
	case <-l.wake:
		return l.drainRequests()
	case <-l.campaign.C:
		if l.raft.BasicStatus().Lead == raft.None {
			return l.raft.Campaign()
		}
	case <-l.stop:
		return ErrClosed
	}
	return nil
}

// step hands a message to Raft, unless that shows that the log has lost entries:
// Raft would panic.
func (l *Log) step(m *raftpb.Message) error {
	if isJoin(m) {
		if l.raft.BasicStatus().RaftState == raft.StateLeader {
			l.joining.ask(m.GetFrom())
		}
		return nil
	}
	if m.GetTo() != l.self {
		return l.misdirected(m)
	}
	last, err := l.memory.LastIndex()
	if err != nil {
		return err
	}
	if m.GetType() == raftpb.MsgHeartbeat && m.GetCommit() > last {
		return ErrLost
	}
	if err := l.refuse(m, last); err != nil {
		l.cfg.Logger.Warn("message of another seed is refused", "seed", m.GetFrom(), "err", err)
		return nil
	}
	if err := l.raft.Step(m); err != nil {
		l.cfg.Logger.Debug("message of another seed is of no use", "seed", m.GetFrom(), "err", err)
	}
	return nil
}

// drainRequests carries out the requests of other goroutines.
func (l *Log) drainRequests() error {
	l.mu.Lock()
	queue, gone := l.queue, l.gone
	l.queue, l.gone = nil, nil
	l.mu.Unlock()
	for _, p := range queue {
		if s := l.raft.BasicStatus(); s.RaftState != raft.StateLeader || s.GetTerm() != p.term {
			continue // Its Machine has been told, or is about to be.
		}
		if err := l.raft.Propose(p.change); err != nil {
			return fmt.Errorf("proposing a change: %w", err)
		}
	}
	for _, seed := range gone {
		if seedOf(l.raft.BasicStatus().Lead) != seed {
			continue
		}
		if err := l.raft.ForgetLeader(); err != nil {
			l.cfg.Logger.Debug("leader is not forgotten", "seed", seed, "err", err)
		}
		l.campaign.Reset(campaignMin + rand.N(campaignMax-campaignMin))
	}
	return nil
}

// handle carries out a Ready of Raft in the order that Raft demands: entries and votes are
// stored before messages about them are sent.
func (l *Log) handle(rd raft.Ready) error {
	if err := l.keep(rd); err != nil {
		return fmt.Errorf("keeping the log of the seeds in %s: %w", l.cfg.Dir, err)
	}
	for _, m := range rd.Messages {
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		l.cfg.Send(seedOf(m.GetTo()), b)
		if m.GetType() == raftpb.MsgSnap {
			// Whether it arrives shows when the seed answers what it is sent next.
			l.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFinish)
		}
	}
	l.reportLeader()
	changed := false // members
	if s := rd.Snapshot; !raft.IsEmptySnap(s) {
		if err := l.cfg.StateMachine.Restore(s.GetData()); err != nil {
			return fmt.Errorf("snapshot of another seed: %w", err)
		}
		l.applied = s.GetMetadata().GetIndex()
		l.members = s.GetMetadata().GetConfState()
	}
	for _, e := range rd.CommittedEntries {
		l.applied = e.GetIndex()
		switch {
		case e.GetType() != raftpb.EntryNormal:
			changed = true
			if err := l.changeMembers(e); err != nil {
				return err
			}
		case len(e.GetData()) > 0:
			l.cfg.StateMachine.Apply(e.GetData())
		}
		l.reportLeader()
	}
	l.reportLeader()
	if err := l.compact(changed); err != nil {
		return fmt.Errorf("compacting the log of the seeds in %s: %w", l.cfg.Dir, err)
	}
	l.raft.Advance(rd)
	return nil
}

// keep stores entries, votes and snapshots. The commit index alone need not be stored: a seed
// learns it again.
func (l *Log) keep(rd raft.Ready) error {
	whole := !raft.IsEmptySnap(rd.Snapshot)
	if whole {
		if err := l.memory.ApplySnapshot(rd.Snapshot); err != nil {
			return err
		}
		l.opened = min(l.opened, rd.Snapshot.GetMetadata().GetIndex())
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		if err := l.memory.SetHardState(rd.HardState); err != nil {
			return err
		}
	}
	if err := l.memory.Append(rd.Entries); err != nil {
		return err
	}
	if len(rd.Entries) > 0 { // They replace all from the first one on.
		l.opened = min(l.opened, rd.Entries[0].GetIndex()-1)
	}
	if !rd.MustSync && !whole {
		return nil
	}
	hard, _, err := l.memory.InitialState()
	if err != nil {
		return err
	}
	return l.disk.keep(hard, rd.Entries, rd.Snapshot)
}

// compact puts a snapshot in the place of changes that the Machine has made, when
// there are many, or when the members have changed: a seed can start from no snapshot of
// which it is no member.
func (l *Log) compact(changed bool) error {
	first, err := l.memory.FirstIndex()
	if err != nil || l.applied < first+keepEntries && !changed {
		return err
	}
	snapshot, err := l.memory.CreateSnapshot(l.applied, l.members, l.cfg.StateMachine.Snapshot())
	if err != nil {
		return err
	}
	// Others that are a little behind are sent changes, and no snapshot.
	upTo := first - 1
	if l.applied > first+keepEntries/2 {
		upTo = l.applied - keepEntries/2
	}
	hard, _, err := l.memory.InitialState()
	if err != nil {
		return err
	}
	if err := l.disk.compact(hard, snapshot, upTo); err != nil || upTo < first {
		return err
	}
	return l.memory.Compact(upTo)
}
