package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestWatchChecksLargeCommsLessOften: while an operation of many ranks is under way, the watchdog is not woken by operations of as
// many, and it is by one of few ranks.
func TestWatchChecksLargeCommsLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, overSim(sim.Config{}), Config{})
		e, many := w.engines[0], make([]*link.Link, 4*queryFew)
		for rank := range many {
			many[rank] = w.links[0][min(rank, 1)]
		}
		large, few := e.NewComm(1, 0, many), e.NewComm(2, 0, w.links[0])
		start := func(c *Comm) {
			if _, err := c.start(w.work(0, pairwise, vector(0, 10))); err != nil {
				t.Fatal(err)
			}
		}
		start(large)
		time.Sleep(2 * large.watchTick())
		for range 3 {
			if start(large); e.resting() != large.watchTick() {
				t.Fatalf("the watchdog checks every %v, want %v", e.resting(), large.watchTick())
			}
			time.Sleep(large.watchTick())
			synctest.Wait()
		}
		start(few)
		if synctest.Wait(); e.resting() != watchTick {
			t.Errorf("with an operation of two ranks the watchdog checks every %v, want %v", e.resting(), watchTick)
		}
	})
}
