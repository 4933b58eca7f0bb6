//race:none its tests start child processes, which the detector does not see

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened opens the store on a rank.
func opened(t *testing.T, c *nexar.Comm) *store {
	t.Helper()
	s, err := open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// together waits until all ranks have finished the test.
func together(t *testing.T, c *nexar.Comm) {
	t.Helper()
	if err := c.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStore: all ranks get the last value put by any rank, and each rank owns some of the keys.
func TestStore(t *testing.T) {
	const keys = 50
	nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
		s := opened(t, c)
		for round := range 2 {
			for i := range keys {
				if i%c.Size() != c.Rank() {
					continue
				}
				if err := s.Put(t.Context(), fmt.Sprint("key ", i), fmt.Sprint("value ", i*(round+1))); err != nil {
					t.Fatal(err)
				}
			}
			together(t, c)
			kept := make([]int, c.Size())
			for i := range keys {
				key := fmt.Sprint("key ", i)
				kept[s.Owner(key)]++
				if got, err := s.Get(t.Context(), key); err != nil || got != fmt.Sprint("value ", i*(round+1)) {
					t.Errorf("%s is %q, error %v", key, got, err)
				}
			}
			for rank, n := range kept {
				if n < keys/6 {
					t.Errorf("rank %d owns %d of %d keys", rank, n, keys)
				}
			}
			together(t, c)
		}
	})
}

// TestAwait: ranks that wait for a key get its value when it is put.
func TestAwait(t *testing.T) {
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s := opened(t, c)
		if c.Rank() == 0 {
			// Each rank waits for the other.
			if err := s.Put(t.Context(), "question", "6 × 9"); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Await(t.Context(), "answer"); err != nil || got != "54 to 6 × 9" {
				t.Errorf("got %q and error %v", got, err)
			}
		} else {
			question, err := s.Await(t.Context(), "question")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Put(t.Context(), "answer", "54 to "+question); err != nil {
				t.Fatal(err)
			}
		}
		together(t, c)
	})
}

// TestNoValue: Get of a key without a value is a HandlerError, Await ends with the deadline, and the
// store continues to work.
func TestNoValue(t *testing.T) {
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s := opened(t, c)
		for i := range 4 { // keys of both ranks
			key := fmt.Sprint("nothing ", i)
			_, err := s.Get(t.Context(), key)
			refusal, ok := errors.AsType[*nexar.HandlerError](err)
			if !ok || refusal.Text != key+" has no value" {
				t.Errorf("got error %v, want a HandlerError about %s", err, key)
			}
			short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err = s.Await(short, key)
			cancel()
			call, ok := errors.AsType[*nexar.CallError](err)
			if !ok || call.Rank != s.Owner(key) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want a CallError of rank %d", err, s.Owner(key))
			}
		}
		if err := s.Put(t.Context(), "something", "1"); err != nil {
			t.Error(err)
		}
		together(t, c)
	})
}
