package raftlog

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
)

// startedAt waits until a seed knows a leader, and returns the number of changes that
// its state machine had applied then.
func (g *group) startedAt(id uint64) (n int) {
	g.t.Helper()
	g.mu.Lock()
	b := g.books[id]
	g.mu.Unlock()
	g.until("the seed knows the leader", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		n = b.started
		return n >= 0
	})
	return n
}

// A seed that receives several changes of the leader's term at once knows the leader
// before it applies them. Changes that were in its log when it was opened are old.
func TestLeaderBeforeItsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		id := g.follower()
		g.kill(id)
		if err := os.RemoveAll(g.path(id)); err != nil {
			t.Fatal(err)
		}
		for _, change := range []string{"1", "2", "3"} {
			g.propose(change)
		}
		g.forgetful(id)
		if n := g.startedAt(id); n != 0 {
			t.Errorf("a seed without its state knows the leader after %d changes, want 0", n)
		}
		g.agree(3, g.seeds...)
		g.caughtUp(id)

		g.kill(id)
		g.propose("4")
		g.start(id)
		if n := g.startedAt(id); n != 3 {
			t.Errorf("a seed that was away knows the leader after %d changes, want the 3 of its own", n)
		}
		g.agree(4, g.seeds...)
	})
}

// The leader is told which seeds lack changes.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3)
		leader, _ := g.leader()
		id := g.follower()
		behind := func(want ...uint64) func() bool {
			return func() bool {
				g.mu.Lock()
				b := g.books[leader]
				g.mu.Unlock()
				b.mu.Lock()
				defer b.mu.Unlock()
				return len(b.lines) == 1 && slices.Equal(b.behind, want)
			}
		}
		g.isolate(id, true)
		g.propose("1")
		g.until("the seed lacks a change", behind(id))
		g.isolate(id, false)
		g.until("the seed has all changes", behind())
	})
}

func (b *journal) Progress(behind []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind = behind
}
