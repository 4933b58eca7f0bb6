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
	go func() { ended <- m.run(ctx, newShort(m, Compile(plans, 0), 0)) }()
	<-deep
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
