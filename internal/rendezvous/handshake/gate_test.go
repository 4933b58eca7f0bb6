package handshake

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGate: few connections write long frames at the same time. A write that blocks delays others by passMax only.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, stuck, began := NewGate(2), make(chan struct{}), time.Now()
		var writing, most atomic.Int32
		written := make(chan time.Duration, 10)
		for range 2 {
			go g.pass(nil, longFrame, func() error { <-stuck; return nil })
		}
		synctest.Wait()
		if err := g.pass(nil, longFrame-1, func() error { return nil }); err != nil || time.Since(began) > 0 {
			t.Errorf("a short frame waits for %v", time.Since(began))
		}
		for range cap(written) {
			go g.pass(nil, longFrame, func() error {
				if n := writing.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Millisecond)
				writing.Add(-1)
				written <- time.Since(began)
				return nil
			})
		}
		var last time.Duration
		for range cap(written) {
			last = <-written
		}
		if n := most.Load(); n > 2 {
			t.Errorf("%d connections write at the same time, want at most 2", n)
		}
		if want := passMax + 5*time.Millisecond; last != want {
			t.Errorf("the last frame is written after %v, want %v", last, want)
		}
		close(stuck)
		synctest.Wait()
		if n := len(g.tokens); n > 0 {
			t.Errorf("%d tokens are held after the last write", n)
		}
	})
}

// TestGateOfEndedConnection: a connection that has ended does not wait.
func TestGateOfEndedConnection(t *testing.T) {
	g, done, ran := NewGate(0), make(chan struct{}), false
	close(done)
	if err := g.pass(done, longFrame, func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("error %v, written: %v", err, ran)
	}
}
