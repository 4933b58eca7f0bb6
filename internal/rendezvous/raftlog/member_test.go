package raftlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// A watch is a log handler that notices when a seed votes, and when it refuses entries that contradict
// its own ones.
type watch struct {
	slog.Handler
	votes, refuses atomic.Bool
}

func (w *watch) Enabled(context.Context, slog.Level) bool { return true }

func (w *watch) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "has caught up, and votes") {
		w.votes.Store(true)
	}
	r.Attrs(func(a slog.Attr) bool {
		if strings.Contains(a.Value.String(), "contradicts the committed one") {
			w.refuses.Store(true)
		}
		return true
	})
	return nil
}

// forgetful starts a seed with ForgetState.
func (g *group) forgetful(id uint64) {
	g.t.Helper()
	g.forget = map[uint64]bool{id: true}
	g.start(id)
	g.forget = nil
}

// follower returns a seed that does not lead.
func (g *group) follower() uint64 {
	g.t.Helper()
	leader, _ := g.leader()
	return g.seeds[(slices.Index(g.seeds, leader)+1)%len(g.seeds)]
}

// caughtUp waits until a seed that has forgotten its state votes.
func (g *group) caughtUp(id uint64) {
	g.t.Helper()
	g.mu.Lock()
	w := g.caught[id]
	g.mu.Unlock()
	g.until("the seed votes again", w.votes.Load)
}

// A seed with a damaged state does not start. With ForgetState it learns the state from
// the others, votes when it has caught up, and has the state after a restart.
func TestForgetState(t *testing.T) {
	// After more than keepEntries changes, it gets a snapshot.
	for _, c := range []struct{ seeds, changes int }{{3, 5}, {5, 5}, {3, keepEntries + 20}} {
		t.Run(fmt.Sprint(c.seeds, " seeds, ", c.changes, " changes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testForgetState(t, c.seeds, c.changes) })
		})
	}
}

func testForgetState(t *testing.T, seeds, changes int) {
	g := newGroup(t, seeds)
	for i := range changes {
		g.propose(fmt.Sprint(i))
	}
	g.agree(changes, g.seeds...)
	id := g.follower()
	g.kill(id)
	if err := os.Truncate(filepath.Join(g.path(id), stateFile), 100); err != nil {
		t.Fatal(err)
	}
	_, err := Open(consensus.Config{Self: id, Seeds: g.seeds, Dir: g.path(id), StateMachine: new(journal), Send: func(uint64, []byte) {}})
	if !errors.Is(err, ErrDamaged) {
		t.Fatalf("a damaged state is used: %v", err)
	}
	g.forgetful(id)
	g.caughtUp(id)
	g.propose("after")
	g.agree(changes+1, g.seeds...)

	// Its vote counts: with it half of the others may fail, also after a restart.
	g.kill(id)
	g.start(id)
	down := 0
	for _, other := range g.seeds {
		if other != id && down < seeds/2 {
			g.kill(other)
			down++
		}
	}
	g.propose("with the seed that has forgotten")
	alive := slices.DeleteFunc(slices.Clone(g.seeds), func(s uint64) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.logs[s] == nil
	})
	lines := g.agree(changes+2, alive...)
	if len(lines) != changes+2 || string(lines[0]) != "0" {
		t.Errorf("%d changes, want %d; the first is %q", len(lines), changes+2, lines[0])
	}
}

// A seed that has forgotten its state does not vote: a change that it has acknowledged
// could be lost with it.
func TestForgetfulSeedDoesNotVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		g.propose("known to all")
		g.agree(1, g.seeds...)
		leader, _ := g.leader()
		others := slices.DeleteFunc(slices.Clone(g.seeds), func(s uint64) bool { return s == leader })
		lost, behind := others[0], others[1]
		g.isolate(behind, true)
		g.propose("known to two")
		g.kill(leader)
		g.kill(lost)
		if err := os.RemoveAll(g.path(lost)); err != nil {
			t.Fatal(err)
		}
		g.isolate(behind, false)
		g.forgetful(lost)
		time.Sleep(time.Minute)
		g.mu.Lock()
		books := []*journal{g.books[lost], g.books[behind]}
		g.mu.Unlock()
		for _, b := range books {
			if _, leads, _ := b.state(); leads != 0 {
				t.Errorf("seed %x leads, elected by a seed that has forgotten its state", leads)
			}
		}
		g.start(leader)
		g.caughtUp(lost)
		g.propose("last")
		lines := g.agree(3, g.seeds...)
		if len(lines) != 3 || string(lines[1]) != "known to two" {
			t.Errorf("changes %q", lines)
		}
	})
}

// A seed may forget its state repeatedly, also while it learns and while the leader
// changes.
func TestForgetStateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		n := 0
		for round := range 6 {
			g.propose(fmt.Sprint(round))
			n++
			id := g.seeds[round%3]
			g.kill(id)
			if err := os.RemoveAll(g.path(id)); err != nil {
				t.Fatal(err)
			}
			g.forgetful(id)
			time.Sleep(time.Duration(round) * 300 * time.Millisecond)
			voted := &g.caught[id].votes
			g.kill(id) // possibly before it votes
			if round%2 == 0 {
				if err := os.RemoveAll(g.path(id)); err != nil {
					t.Fatal(err)
				}
			}
			g.forgetful(id)
			if round%2 == 0 || !voted.Load() {
				g.caughtUp(id)
			}
		}
		g.propose("last")
		if lines := g.agree(n+1, g.seeds...); len(lines) != n+1 {
			t.Errorf("%d changes, want %d", len(lines), n+1)
		}
	})
}

// A seed that returns with an old or empty directory after another member has replaced
// it ends with an error.
func TestReplacedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		g.propose("something")
		g.agree(1, g.seeds...)
		id := g.follower()
		g.kill(id)
		old := g.path(id) + ".old"
		if err := os.Rename(g.path(id), old); err != nil {
			t.Fatal(err)
		}
		g.forgetful(id)
		g.caughtUp(id)
		for _, dir := range []string{old, t.TempDir()} {
			g.kill(id)
			if err := errors.Join(os.RemoveAll(g.path(id)), os.Rename(dir, g.path(id))); err != nil {
				t.Fatal(err)
			}
			g.start(id)
			g.mu.Lock()
			l := g.logs[id]
			g.mu.Unlock()
			<-l.Done()
			if !errors.Is(l.Err(), ErrLost) {
				t.Errorf("error %v, want ErrLost", l.Err())
			}
		}
	})
}

// Changes of the members that no seed proposes are an error, not a panic.
func TestInvalidMemberChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, change := range []*raftpb.ConfChange{
			{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: proto.Uint64(99 << 50)},
			{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: proto.Uint64(1 << 40)},
			{Type: raftpb.ConfChangeUpdateNode.Enum(), NodeId: proto.Uint64(1 << 40)},
			{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: proto.Uint64(1 << 40)},
		} {
			g := newGroup(t, 1)
			g.propose("something")
			l := g.logs[g.seeds[0]]
			g.kill(g.seeds[0])
			b, err := proto.Marshal(change)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.changeMembers(&raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Index: proto.Uint64(3), Data: b}); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v: error %v", change, err)
			}
		}
	})
}

// A request expires unless it is repeated, and a later one of the same seed replaces
// it.
func TestJoinRequestsExpire(t *testing.T) {
	var j joining
	j.ask(1<<40 | 5)
	j.ask(2<<40 | 6)
	for range joinTicks {
		if m := j.tick(); !slices.Equal(m, []uint64{1<<40 | 5, 2<<40 | 6}) {
			t.Fatalf("members %x", m)
		}
	}
	j.ask(1<<40 | 7)
	for range joinTicks {
		j.tick()
	}
	if m := j.tick(); !slices.Equal(m, []uint64{1<<40 | 7}) {
		t.Errorf("members %x", m)
	}
}

// Entries with changes of the members that no seed proposes are refused: once
// committed, they would end each seed that has them, after every restart.
func TestInvalidEntriesAreRefused(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	g.propose("something")
	id, term := g.leader()
	from := g.seeds[0]
	if from == id {
		from = g.seeds[1]
	}
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	later := term + 1
	for name, e := range map[string]*raftpb.Entry{
		"another type":   {Type: raftpb.EntryConfChangeV2.Enum(), Data: encode(&raftpb.ConfChangeV2{})},
		"not a change":   {Type: raftpb.EntryConfChange.Enum(), Data: []byte{0xff}},
		"unknown seed":   {Type: raftpb.EntryConfChange.Enum(), Data: encode(&raftpb.ConfChange{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: proto.Uint64(99 << 50)})},
		"unknown change": {Type: raftpb.EntryConfChange.Enum(), Data: encode(&raftpb.ConfChange{Type: raftpb.ConfChangeUpdateNode.Enum(), NodeId: &from})},
	} {
		e.Index, e.Term = proto.Uint64(5), &later
		m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: &from, To: &id, Term: &later, Index: proto.Uint64(4), LogTerm: &term, Entries: []*raftpb.Entry{e}}
		if err := g.logs[id].Step(from, encode(m)); err == nil {
			t.Errorf("%s: the entry is accepted", name)
		}
	}
	g.propose("goes on")
}
