package match

import (
	"math/rand/v2"
	"testing"
)

// Receives and messages with many tags leave only the empty queues that are kept.
func TestManyTagsAreForgotten(t *testing.T) {
	var m Matcher[int64, int64]
	const tags = 100
	random := rand.New(rand.NewPCG(1, 2))
	for round := range int64(5) {
		for i := range int64(tags) {
			tag := round*tags + i
			m.Post(1, tag, tag)
			m.Keep(2, tag, tag)
		}
		for _, i := range random.Perm(tags) {
			tag := round*tags + int64(i)
			if r, ok := m.Take(1, tag); !ok || r != tag {
				t.Fatalf("tag %d: Take() = %d, %v", tag, r, ok)
			}
			if msg, ok := m.Post(2, tag, 0); !ok || msg != tag {
				t.Fatalf("tag %d: Post() = %d, %v", tag, msg, ok)
			}
		}
		if e, l := len(m.exact.by), len(m.early.by); e > keptMax || l > keptMax {
			t.Fatalf("%d queues of receives and %d of messages are left", e, l)
		}
	}
	if n := len(m.exact.spare); n > keptMax {
		t.Errorf("memory of %d queues is kept", n)
	}
}

// A queue that never becomes empty reuses the memory of removed entries.
func TestQueueIsCompacted(t *testing.T) {
	var m Matcher[int, int]
	const waiting = 3
	for i := range waiting {
		m.Post(1, 1, i)
	}
	for i := range 10_000 {
		m.Post(1, 1, i+waiting)
		if r, _ := m.Take(1, 1); r != i {
			t.Fatalf("receive %d instead of %d", r, i)
		}
	}
	if n := cap(m.exact.by[key{1, 1}].entries); n > 8*waiting {
		t.Errorf("a queue of %d has room for %d", waiting, n)
	}
}

// A queue that was cleared while it was kept can be used and kept again.
func TestClearedQueueComesAgain(t *testing.T) {
	var m Matcher[int, int]
	for i := range 10 * keptMax {
		m.Post(1, 1, i)
		if r, ok := m.Take(1, 1); !ok || r != i {
			t.Fatalf("Take() = %d, %v; want %d", r, ok, i)
		}
		m.Post(1, 1, i)
		if got := m.ClearReceives(func(int) bool { return true }); len(got) != 1 || got[0] != i {
			t.Fatalf("ClearReceives() = %v, want %d", got, i)
		}
	}
}

func TestLongQueueGivesItsMemoryBack(t *testing.T) {
	var m Matcher[int, int]
	for i := range 10 * entriesMax {
		m.Post(1, 1, i)
	}
	for range 10 * entriesMax {
		m.Take(1, 1)
	}
	if n := cap(m.exact.by[key{1, 1}].entries); n > entriesMax {
		t.Errorf("an empty queue has room for %d", n)
	}
}
