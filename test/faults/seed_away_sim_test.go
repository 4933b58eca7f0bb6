package faults

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSeedAwayForAWhile: nobody reaches a seed without a state for longer than both sides wait for each other. No node is removed, and the world goes on.
func TestSeedAwayForAWhile(t *testing.T) {
	require.NoRace(t, "minutes of fake time are many timers")
	for away := 24 * time.Second; away <= 50*time.Second; away += 1300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			w := worldtest.NewSimCluster(t, uint64(away), 3)
			defer w.Close()
			nodes := w.JoinHosts(t, 3)
			time.Sleep(10 * time.Second)
			w.Network.Partition("seed")
			time.Sleep(away)
			w.Network.Heal()
			time.Sleep(time.Minute)
			for rank, n := range nodes {
				if err := n.World().Err(); err != nil {
					t.Errorf("the seed was away for %v: rank %d: %v", away, rank, err)
				}
				defer n.Close()
			}
			if t.Failed() {
				return
			}
			worldtest.OnAll(t, []*nexar.Comm{nodes[0].World(), nodes[1].World(), nodes[2].World()}, func(_ int, c *nexar.Comm) error { return toAll(w.Ctx, c) })
		})
	}
}
