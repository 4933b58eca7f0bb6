package selector

import (
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestTunerFromSeveralGoroutines: goroutines that share a [cost.Tuner] get the choices of one that has it alone. The test is
// here since the tests of internal/cost run without the race detector.
func TestTunerFromSeveralGoroutines(t *testing.T) {
	const ranks = 16
	tuner, alone := cost.New(cost.QUIC()), cost.New(cost.QUIC())
	var all sync.WaitGroup
	defer all.Wait()
	for _, c := range plan.Collectives() {
		for bytes := 1; bytes <= 1<<24; bytes *= 16 {
			n := cost.Need{Collective: c, Size: ranks, Bytes: bytes}
			want := alone.Choose(n)
			for range 4 {
				all.Go(func() {
					if got := tuner.Choose(n); got.Index != want.Index || got.Channels != want.Channels || got.Seconds != want.Seconds {
						t.Errorf("%v of %d bytes: %s on %d channels, want %s on %d", c, bytes, got.Algorithm.Name, got.Channels, want.Algorithm.Name, want.Channels)
					}
				})
			}
		}
	}
}
