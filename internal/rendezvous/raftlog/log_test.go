package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A journal is a state machine that records all changes, and the leader.
type journal struct {
	mu     sync.Mutex
	lines  [][]byte
	leader uint64
	term   uint64
	behind []uint64 // seeds that lack changes, as last reported to a leader
	// started is the number of lines when a leader was first known, or -1.
	started int
}

func (b *journal) Apply(change []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, bytes.Clone(change))
}

func (b *journal) Lead(seed, term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader, b.term = seed, term
	if seed != 0 && b.started < 0 {
		b.started = len(b.lines)
	}
}

func (b *journal) Snapshot() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []byte
	for _, l := range b.lines {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(l))), l...)
	}
	return all
}

func (b *journal) Check([]byte) error { return nil }

func (b *journal) Restore(state []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = nil
	for len(state) > 0 {
		n := binary.BigEndian.Uint32(state)
		b.lines = append(b.lines, bytes.Clone(state[4:4+n]))
		state = state[4+n:]
	}
	return nil
}

func (b *journal) state() (lines [][]byte, leader, term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.lines), b.leader, b.term
}

// A group is a set of seeds and the network between them.
type group struct {
	t     *testing.T
	dir   string
	seeds []uint64

	mu    sync.Mutex
	logs  map[uint64]*Log
	books map[uint64]*journal
	cut   map[uint64]bool // isolated seeds
	loss  float64
	wg    sync.WaitGroup
	// forget are seeds that start with ForgetState, and caught reports that they have
	// caught up.
	forget map[uint64]bool
	caught map[uint64]*watch
}

func newGroup(t *testing.T, n int) *group {
	g := &group{t: t, dir: t.TempDir(), logs: make(map[uint64]*Log), books: make(map[uint64]*journal), caught: make(map[uint64]*watch), cut: make(map[uint64]bool)}
	for i := range n {
		g.seeds = append(g.seeds, uint64(i+1)<<40)
	}
	for _, id := range g.seeds {
		g.start(id)
	}
	t.Cleanup(func() {
		for _, id := range g.seeds {
			g.kill(id)
		}
		g.wg.Wait()
	})
	return g
}

func (g *group) path(id uint64) string { return filepath.Join(g.dir, fmt.Sprint(id)) }

func (g *group) start(id uint64) {
	g.t.Helper()
	b := &journal{started: -1}
	w := &watch{Handler: slog.DiscardHandler}
	l, err := Open(consensus.Config{Logger: slog.New(w), ForgetState: g.forget[id], Self: id, Seeds: g.seeds, Dir: g.path(id), StateMachine: b, Send: func(to uint64, m []byte) { g.send(id, to, m) }})
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.logs[id], g.books[id], g.caught[id] = l, b, w
	g.mu.Unlock()
}

func (g *group) send(from, to uint64, m []byte) {
	g.mu.Lock()
	l, lost := g.logs[to], g.cut[from] || g.cut[to] || rand.Float64() < g.loss
	g.mu.Unlock()
	if l != nil && !lost {
		g.wg.Go(func() { l.Step(from, m) })
	}
}

// kill ends a seed but keeps its directory.
func (g *group) kill(id uint64) {
	g.mu.Lock()
	l := g.logs[id]
	delete(g.logs, id)
	delete(g.books, id)
	g.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

func (g *group) isolate(id uint64, cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut[id] = cut
}

// until waits for a condition.
func (g *group) until(what string, ok func() bool) {
	g.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// leader waits for a leader other than the given seeds.
func (g *group) leader(but ...uint64) (id, term uint64) {
	g.t.Helper()
	g.until("a seed leads", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for seed, b := range g.books {
			if _, leads, at := b.state(); leads == seed && !slices.Contains(but, seed) {
				id, term = seed, at
				return true
			}
		}
		return false
	})
	return id, term
}

// propose proposes a change until it is committed. While the same seed leads, it waits
// for the first proposal, since a second one would be a second change.
func (g *group) propose(change string, but ...uint64) {
	g.t.Helper()
	g.until("change "+change, func() bool {
		id, term := g.leader(but...)
		g.mu.Lock()
		l := g.logs[id]
		g.mu.Unlock()
		l.Propose(term, []byte(change))
		for range 10_000 {
			g.mu.Lock()
			b := g.books[id]
			g.mu.Unlock()
			if lines, leader, at := b.state(); slices.ContainsFunc(lines, func(l []byte) bool { return string(l) == change }) {
				return true
			} else if leader != id || at != term {
				return false
			}
			time.Sleep(time.Millisecond)
		}
		return false
	})
}

// agree waits until the given seeds have the same n changes, and returns them.
func (g *group) agree(n int, seeds ...uint64) (lines [][]byte) {
	g.t.Helper()
	g.until(fmt.Sprintf("all agree on %d changes", n), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, id := range seeds {
			l, _, _ := g.books[id].state()
			if i == 0 {
				lines = l
			}
			if len(l) < n || !slices.EqualFunc(l, lines, bytes.Equal) {
				return false
			}
		}
		return true
	})
	return lines
}

func TestOneSeed(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	id := g.seeds[0]
	for i := range 3 * keepEntries { // Snapshots replace most of them.
		g.propose(fmt.Sprint("change ", i))
	}
	const tries = 3 // on a loaded machine
	for try := range tries {
		g.kill(id)
		began := time.Now()
		g.start(id)
		lines := g.agree(3*keepEntries+try, id)
		if string(lines[700]) != "change 700" || len(lines) != 3*keepEntries+try {
			t.Errorf("%d changes, the 700th is %q", len(lines), lines[700])
		}
		g.propose(fmt.Sprint("one more ", try))
		d := time.Since(began)
		if d <= tick*electionTicks {
			return
		}
		t.Logf("led after %v", d)
	}
	t.Error("a single seed waits for an election")
}

func TestSeedsAgree(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			g := newGroup(t, n)
			for i := range 20 {
				g.propose(fmt.Sprint(i))
			}
			g.agree(20, g.seeds...)
		})
	}
}

// Committed changes survive the death of the leader, and of all seeds.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	var dead uint64
	for i := range 4 {
		g.propose(fmt.Sprint("round ", i))
		id, _ := g.leader()
		g.kill(id)
		for _, other := range g.seeds {
			g.mu.Lock()
			l := g.logs[other]
			g.mu.Unlock()
			if l != nil {
				l.Gone(id)
			}
		}
		began := time.Now()
		g.propose(fmt.Sprint("after ", i))
		t.Logf("change committed %v after the end of the leader", time.Since(began))
		g.start(id)
		dead = id
	}
	g.agree(8, g.seeds...)
	for _, id := range g.seeds {
		g.kill(id)
	}
	for _, id := range g.seeds {
		g.start(id)
	}
	g.propose("again")
	if lines := g.agree(9, g.seeds...); string(lines[0]) != "round 0" || len(lines) != 9 {
		t.Errorf("seed %x was started again with %d changes, the first is %q", dead, len(lines), lines[0])
	}
}

// A seed that cannot reach a majority steps down, and its pending proposals are lost.
func TestLeaderCutOff(t *testing.T) { synctest.Test(t, testLeaderCutOff) }

func testLeaderCutOff(t *testing.T) {
	g := newGroup(t, 3)
	g.propose("before")
	old, term := g.leader()
	g.isolate(old, true)
	g.mu.Lock()
	l, b := g.logs[old], g.books[old]
	g.mu.Unlock()
	l.Propose(term, []byte("no majority"))
	g.propose("others", old)
	g.until("the leader steps down", func() bool { _, leader, _ := b.state(); return leader != old })
	g.isolate(old, false)
	for _, line := range g.agree(2, g.seeds...) {
		if string(line) == "no majority" {
			t.Error("an isolated seed has committed a change")
		}
	}
	l.Propose(term, []byte("old term"))
	g.propose("last")
	for _, line := range g.agree(3, g.seeds...) {
		if string(line) == "old term" {
			t.Error("a change of an old term was committed")
		}
	}
}

// A seed that was away for long gets a snapshot.
func TestSeedCatchesUp(t *testing.T) { synctest.Test(t, testSeedCatchesUp) }

func testSeedCatchesUp(t *testing.T) {
	g := newGroup(t, 3)
	leader, _ := g.leader()
	late := g.seeds[0]
	if late == leader {
		late = g.seeds[1]
	}
	g.kill(late)
	for i := range 2 * keepEntries {
		g.propose(fmt.Sprint(i))
	}
	g.start(late)
	g.agree(2*keepEntries, g.seeds...)
}

func TestLossyNetwork(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.loss = 0.1
	for i := range 20 {
		g.propose(fmt.Sprint(i))
	}
	g.agree(20, g.seeds...)
}

func TestDirectoryOfAnother(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	id, dir := g.seeds[0], g.path(g.seeds[0])
	open := func(self uint64, seeds ...uint64) error {
		l, err := Open(consensus.Config{Self: self, Seeds: seeds, Dir: dir, StateMachine: new(journal), Send: func(uint64, []byte) {}})
		if err == nil {
			l.Close()
		}
		return err
	}
	if err := open(id, id); err == nil {
		t.Error("a second seed has opened the directory")
	}
	g.kill(id)
	for _, seeds := range [][]uint64{{7}, {7, id}, {id, 7}} {
		if err := open(seeds[0], seeds...); err == nil {
			t.Errorf("seed %x of %x takes the directory of seed %x", seeds[0], seeds, id)
		}
	}
	if err := open(id, id); err != nil {
		t.Error(err)
	}
	if err := open(id); err == nil {
		t.Error("a seed outside the list of seeds is accepted")
	}
}

// A seed with an emptied directory does not take part: others may have counted on its
// acknowledgements.
func TestLostDirectory(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.propose("something")
	g.agree(1, g.seeds...)
	leader, _ := g.leader()
	lost := g.seeds[0]
	if lost == leader {
		lost = g.seeds[1]
	}
	g.kill(lost)
	before := g.dir
	g.dir = t.TempDir()
	g.start(lost)
	g.dir = before
	g.mu.Lock()
	l := g.logs[lost]
	g.mu.Unlock()
	<-l.Done()
	if !errors.Is(l.Err(), ErrLost) {
		t.Errorf("error %v, want ErrLost", l.Err())
	}
	if err := l.Step(leader, nil); err == nil {
		t.Error("Step accepts a message")
	}
}

func TestStrangeMessages(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.propose("something")
	id, _ := g.leader()
	l := g.logs[id]
	for _, m := range [][]byte{nil, {1, 2, 3}, bytes.Repeat([]byte{0xff}, 100)} {
		if err := l.Step(g.seeds[0], m); err == nil {
			t.Errorf("%x is a message", m)
		}
	}
	g.propose("goes on")
}

// Two of three seeds lose their logs and commit other changes. The third seed refuses these, and the two
// go on without it.
func TestMixedDirectories(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	for i := range 5 {
		g.propose(fmt.Sprint(i))
	}
	g.agree(5, g.seeds...)
	for _, id := range g.seeds {
		g.kill(id)
	}
	before := g.dir
	g.dir = t.TempDir()
	for _, id := range g.seeds[:2] {
		g.start(id)
	}
	for i := range 3 {
		g.propose(fmt.Sprint("other ", i))
	}
	g.dir = before
	third := g.seeds[2]
	g.start(third)
	g.until("the seed refuses the changes of the others", g.caught[third].refuses.Load)
	for i := range 10 {
		g.propose(fmt.Sprint("more ", i))
	}
	g.agree(13, g.seeds[:2]...)
	if lines, _, _ := g.books[third].state(); slices.ContainsFunc(lines, func(l []byte) bool { return len(l) > 1 }) {
		t.Errorf("the seed has applied changes of the others: %q", lines)
	}
}

func TestUnwantedMessages(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.propose("something")
	id, term := g.leader()
	from := g.seeds[0]
	if from == id {
		from = g.seeds[1]
	}
	for _, typ := range []raftpb.MessageType{raftpb.MsgTimeoutNow, raftpb.MsgTransferLeader, raftpb.MsgProp, raftpb.MsgHup, raftpb.MsgStorageAppendResp, raftpb.MsgReadIndex} {
		b, err := proto.Marshal(&raftpb.Message{Type: typ.Enum(), From: &from, To: &id, Term: &term})
		if err != nil {
			t.Fatal(err)
		}
		if err := g.logs[id].Step(from, b); err == nil {
			t.Errorf("a seed takes a %v", typ)
		}
	}
	g.propose("goes on")
}
