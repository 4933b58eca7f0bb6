package shmexec

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestDeepSleep: the end of its context wakes a rank that has slept for long, without a timer.
func TestDeepSleep(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	m := memories[0]
	deep, woken := make(chan struct{}), make(chan struct{}, 1)
	var once sync.Once
	m.cfg.Sleep = func(_ *atomic.Uint32, _ uint32, d time.Duration) {
		if d < sleepDeep {
			return
		}
		once.Do(func() { close(deep) })
		<-woken
	}
	m.cfg.Wake = func(*atomic.Uint32) { woken <- struct{}{} }
	plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(2, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.run(ctx, newShort(m, NewSchedule(plans).Compile(0), 0)) }()
	<-deep
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestReachedCounterIsNoWait: a rank waits for another only until the counter has the awaited value, also if its goroutine has not
// run since.
func TestReachedCounterIsNoWait(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	m, value := memories[0], ^uint32(0) // The counter wraps around.
	var counter atomic.Uint32
	counter.Store(value - 1)
	m.setAwaited(awaited{rank: 1, at: &counter, value: value})
	if rank := m.waiting(); rank != 1 {
		t.Errorf("waits for rank %d, want 1", rank)
	}
	for range 2 {
		counter.Add(1)
		if rank := m.waiting(); rank >= 0 {
			t.Errorf("waits for rank %d although its counter is %d, want at least %d", rank, counter.Load(), value)
		}
	}
}

// TestCrowdedSleep: with many ranks for each processor a rank sleeps for long at once, and the end of its context wakes it.
func TestCrowdedSleep(t *testing.T) {
	const n, processors = 64, 2
	memories, _ := newMemories(n, 1<<10)
	m := New(Config{Rank: 0, Areas: memories[0].cfg.Areas, Processors: processors, SameProcess: true})
	woken := make(chan struct{}, 1)
	slept := make(chan time.Duration, 1)
	m.cfg.Sleep = func(_ *atomic.Uint32, _ uint32, d time.Duration) {
		slept <- d
		<-woken
	}
	m.cfg.Wake = func(*atomic.Uint32) { woken <- struct{}{} }
	plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(n, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.run(ctx, newShort(m, NewSchedule(plans).Compile(0), 0)) }()
	if d, want := <-slept, sleepFirst*n/(ranksMax*processors); d != want {
		t.Errorf("sleeps for %v at first, want %v", d, want)
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
