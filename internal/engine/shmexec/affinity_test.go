package shmexec

import (
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/spin"
)

// TestSettle: Settle shows the processor of the rank, also when several goroutines call it. Without
// processes of their own, ranks have no Place.
func TestSettle(t *testing.T) {
	memories, _ := newMemories(2, 1<<10)
	memories[0].Place().Settle()
	cfg := memories[0].cfg
	cfg.SameProcess = false
	b := New(cfg)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 16 {
				b.Place().Settle()
			}
		})
	}
	all.Wait()
	if got, known := word(cfg.Areas[0], runsAt).Load(), spin.Processor() >= 0; (got > 0) != known {
		t.Errorf("shows %d, want a processor: %v", got, known)
	}
}
