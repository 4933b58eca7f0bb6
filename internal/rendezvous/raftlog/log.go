// Package raftlog implements [consensus.Log] by Raft (Ongaro and Ousterhout, "In Search
// of an Understandable Consensus Algorithm", USENIX ATC 2014), with go.etcd.io/raft.
//
// The log is stored in a directory. A restarted seed has everything that it ever
// acknowledged, or [Open] returns a [FileError]. A seed that has lost its directory
// must not vote as if it had it: with ForgetState it first learns the log from the
// other seeds. A seed that was restarted without ForgetState ends with [ErrLost] once
// the leader shows that entries are missing.
package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	// tick is the interval of raft.RawNode.Tick: the leader sends a heartbeat in each,
	// and another seed starts an election after 10 to 20 without one.
	tick          = 100 * time.Millisecond
	electionTicks = 10
	// keepEntries is the number of entries after which a snapshot replaces older ones.
	keepEntries = 256
	// messageBytesMax bounds the entries of one message.
	messageBytesMax = 256 << 10
	inflightMax     = 64
)

// ErrClosed is the error of a Log that was closed.
var ErrClosed = errors.New("closed")

// ErrDamaged reports that the log of a seed differs from its former state, or
// contradicts the logs of the others.
var ErrDamaged = errors.New("the logs of the seeds contradict each other: a state directory was lost, exchanged or damaged")

// ErrLost reports that a seed has lost entries that it has acknowledged.
var ErrLost = errors.New("the state directory of this seed lacks changes that this seed has acknowledged. Restore the directory, or empty it and start the seed with --forget-state, so that it learns the state from the other seeds before it votes")

// A Log is the Raft log of one seed. Its goroutine calls the state machine.
type Log struct {
	cfg    consensus.Config
	raft   *raft.RawNode
	memory *raft.MemoryStorage // the log as Raft reads it
	disk   *disk               // the durable copy

	self     uint64            // this seed's ID in Raft
	members  *raftpb.ConfState // after the last applied change
	joining  joining           // seeds that have forgotten their state
	applied  uint64            // index of the last applied entry
	opened   uint64            // index of the last entry when the log was opened, less any replaced since
	leader   uint64            // as reported to the state machine
	term     uint64
	campaign *time.Timer // fires when to start an election; stopped unless the leader's process has ended

	inbox chan *raftpb.Message
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}
	err   error // set before done is closed

	mu    sync.Mutex     // guards the next field
	calls []func() error // for the goroutine of the log
	wake  chan struct{}  // one token: calls is not empty
}

// Open opens the log of a seed, and creates it if there is none.
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

// start restores the state machine and starts Raft.
func (l *Log) start(c *contents) (err error) {
	defer recoverRaft(&err)
	snapshot := c.snapshot
	if err := errors.Join(l.memory.ApplySnapshot(snapshot), l.memory.SetHardState(c.hard), l.memory.Append(c.entries)); err != nil {
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
		DisableProposalForwarding: true, Logger: newLogger(l.cfg.Logger),
	})
	return err
}

// Propose implements [consensus.Log].
func (l *Log) Propose(term uint64, change []byte) {
	l.post(func() error {
		if s := l.raft.BasicStatus(); s.RaftState != raft.StateLeader || s.GetTerm() != term {
			return nil // The state machine learns of the lost leadership.
		}
		if err := l.raft.Propose(change); err != nil {
			return fmt.Errorf("proposing a change: %w", err)
		}
		return nil
	})
}

// Gone implements [consensus.Log].
func (l *Log) Gone(seed uint64) {
	l.post(func() error {
		if seedOf(l.raft.BasicStatus().Lead) != seed {
			return nil
		}
		if err := l.raft.ForgetLeader(); err != nil {
			l.cfg.Logger.Debug("cannot forget leader", "seed", seed, "err", err)
		}
		// The delay of the election is random, so that rarely two seeds start one at once.
		l.campaign.Reset(tick/5 + rand.N(tick*13/10))
		return nil
	})
}

// post hands a call to the goroutine of the log.
func (l *Log) post(call func() error) {
	l.mu.Lock()
	l.calls = append(l.calls, call)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Step implements [consensus.Log]. It blocks until the goroutine of the log takes the
// message.
func (l *Log) Step(from uint64, message []byte) error {
	m := new(raftpb.Message)
	if err := proto.Unmarshal(message, m); err != nil {
		return fmt.Errorf("invalid message: %w", err)
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

// check returns an error for a message that no seed sends.
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

// Done implements [consensus.Log].
func (l *Log) Done() <-chan struct{} { return l.done }

// Err implements [consensus.Log].
func (l *Log) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Close implements [consensus.Log].
func (l *Log) Close() error {
	l.once.Do(func() { close(l.stop) })
	<-l.done
	return nil
}

// run is the goroutine of the log.
func (l *Log) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	defer l.campaign.Stop()
	err := l.serve(ticker.C)
	l.err = ErrClosed
	if closing := l.disk.close(); !errors.Is(err, ErrClosed) || closing != nil {
		l.err = errors.Join(err, closing)
		l.cfg.Logger.Error("log of the seeds has ended", "err", l.err)
	}
	close(l.done)
}

// serve drives Raft until an error.
func (l *Log) serve(ticks <-chan time.Time) (err error) {
	defer recoverRaft(&err)
	if len(l.cfg.Seeds) == 1 {
		err = l.raft.Campaign() // a single seed waits for no election
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

// recoverRaft converts a panic of Raft, which reports logs that contradict each other,
// to an error. It passes on other panics.
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
		return l.runCalls()
	case <-l.campaign.C:
		if l.raft.BasicStatus().Lead == raft.None {
			return l.raft.Campaign()
		}
	case <-l.stop:
		return ErrClosed
	}
	return nil
}

// step passes a message to Raft, unless it shows that this log has lost entries, on
// which Raft would panic.
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
		l.cfg.Logger.Warn("refused message of another seed", "seed", m.GetFrom(), "err", err)
		return nil
	}
	if err := l.raft.Step(m); err != nil {
		l.cfg.Logger.Debug("ignored message of another seed", "seed", m.GetFrom(), "err", err)
	}
	return nil
}

// runCalls runs the calls of other goroutines.
func (l *Log) runCalls() error {
	l.mu.Lock()
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// handle processes a Ready of Raft in the required order: it stores entries and votes before it
// sends messages about them.
func (l *Log) handle(rd raft.Ready) error {
	if err := l.keep(rd); err != nil {
		return fmt.Errorf("storing the log of the seeds in %s: %w", l.cfg.Dir, err)
	}
	for _, m := range rd.Messages {
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		l.cfg.Send(seedOf(m.GetTo()), b)
		if m.GetType() == raftpb.MsgSnap {
			// The answer to the next message shows whether it has arrived.
			l.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFinish)
		}
	}
	l.reportLeader()
	changed := false // of the members
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

// keep stores entries, votes and snapshots. A new commit index alone is not stored: the
// seed learns it again.
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
	if len(rd.Entries) > 0 { // They replace all entries from the first one on.
		l.opened = min(l.opened, rd.Entries[0].GetIndex()-1)
	}
	if !rd.MustSync && !whole {
		return nil
	}
	return l.save()
}

// save writes the log to the disk.
func (l *Log) save() error {
	hard, _, err := l.memory.InitialState()
	snapshot, err2 := l.memory.Snapshot()
	last, err3 := l.memory.LastIndex()
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	c := &contents{member: l.self, seeds: encodeSeeds(l.cfg.Seeds), hard: hard, snapshot: snapshot}
	if first := snapshot.GetMetadata().GetIndex() + 1; first <= last {
		if c.entries, err = l.memory.Entries(first, last+1, math.MaxUint64); err != nil {
			return err
		}
	}
	return l.disk.save(c)
}

// compact replaces applied entries by a snapshot, if there are many or if the members have
// changed: a seed cannot start from a snapshot without itself as a member.
func (l *Log) compact(changed bool) error {
	first, err := l.memory.FirstIndex()
	if err != nil || l.applied < first+keepEntries && !changed {
		return err
	}
	if _, err := l.memory.CreateSnapshot(l.applied, l.members, l.cfg.StateMachine.Snapshot()); err != nil {
		return err
	}
	// Seeds that are slightly behind get entries in place of a snapshot.
	if l.applied > first+keepEntries/2 {
		if err := l.memory.Compact(l.applied - keepEntries/2); err != nil {
			return err
		}
	}
	return l.save()
}
