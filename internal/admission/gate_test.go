package admission

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate: Enter blocks at a full Gate until a connection leaves or is old enough to be
// evicted, and does not block for a limited source.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{Max: 2, Burst: 2, Interval: time.Hour})
		evicted := 0
		evict := func() { evicted++ }
		enter := func() *Ticket {
			t.Helper()
			ticket, err := g.Enter(nil, addr(1), evict)
			if err != nil {
				t.Fatal(err)
			}
			return ticket
		}
		a, b := enter(), enter()
		if _, err := g.TryEnter(addr(1), true, evict); !errors.Is(err, ErrFull) {
			t.Errorf("a full gate: error %v", err)
		}
		start := time.Now()
		time.AfterFunc(100*time.Millisecond, func() {
			if !a.Prove() {
				t.Error("a connection in time was evicted")
			}
		})
		c := enter()
		if took := time.Since(start); took != 100*time.Millisecond || evicted != 0 {
			t.Errorf("waited %v for an entry that was released after 100 ms; %d evicted", took, evicted)
		}
		enter()
		if took := time.Since(start); took != time.Second || evicted != 1 {
			t.Errorf("waited until %v for an entry that can be evicted after 1 s; %d evicted", took, evicted)
		}
		if b.Prove() {
			t.Error("Prove succeeds for an evicted connection")
		}
		b.Leave()
		c.Leave()
		if _, err := g.Enter(nil, addr(1), evict); !errors.Is(err, ErrLimited) {
			t.Errorf("after two failures: %v", err)
		}
		if g.Len() != 1 || !g.Pressed() {
			t.Errorf("%d connections, under pressure: %v", g.Len(), g.Pressed())
		}
		done := make(chan struct{})
		close(done)
		g.Enter(nil, addr(2), evict)
		if _, err := g.Enter(done, addr(2), evict); !errors.Is(err, ErrFull) {
			t.Errorf("after the end of the listener: %v", err)
		}
	})
}
