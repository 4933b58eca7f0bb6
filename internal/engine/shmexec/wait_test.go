package shmexec

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestDeepSleep: a rank that sleeps for long is woken by the end of its context, and not
// by looking around.
func TestDeepSleep(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	b := memories[0]
	deep, woken := make(chan struct{}), make(chan struct{}, 1)
	var once sync.Once
	b.cfg.Sleep = func(_ *atomic.Uint32, _ uint32, d time.Duration) {
		if d < sleepDeep {
			return
		}
		once.Do(func() { close(deep) })
		<-woken
	}
	b.cfg.Wake = func(*atomic.Uint32) { woken <- struct{}{} }
	plans := plan.Algorithm{Plan: func(rank, size, _ int) plan.Plan { return plan.FlatBarrier(rank, size) }}.Plans(2, 0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- b.run(ctx, &work{
			program: Compile(plans, 0), buffers: newVectors(1, func(int, int) int { return 0 }), pieces: 1, elem: 1,
			poll: context.Context.Err,
		})
	}()
	<-deep
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
