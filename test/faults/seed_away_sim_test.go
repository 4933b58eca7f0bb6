package faults

import (
	"fmt"
	"sync"
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

// TestLeaveWhileSeedAway: nobody reaches the seed while a node fails and another one leaves. When the others reach the seed again, they tell it, and
// go on without both.
func TestLeaveWhileSeedAway(t *testing.T) {
	for _, topology := range []string{"full", "k-regular:2"} {
		synctest.Test(t, func(t *testing.T) {
			w := worldtest.NewSimCluster(t, 1, 5)
			defer w.Close()
			nodes := make([]*nexar.Node, 5)
			if err := worldtest.ForEach(len(nodes), func(rank int) (err error) {
				nodes[rank], err = w.Join(fmt.Sprint("host", rank), nexar.Config{Rank: &rank, Topology: topology, RecoveryTimeout: time.Minute})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer nodes[4].Close()
			var working sync.WaitGroup
			for rank, n := range nodes[:3] {
				defer n.Close()
				working.Go(func() {
					for c, err := range n.Epochs(w.Ctx) {
						switch {
						case err != nil:
							t.Errorf("%s: rank %d: %v", topology, rank, err)
							return
						case c.Size() == 3:
							if err := toAll(w.Ctx, c); err != nil {
								t.Errorf("%s: rank %d, epoch %d: %v", topology, rank, c.Epoch(), err)
							}
							return
						}
						for err == nil {
							err = c.Barrier(w.Ctx)
						}
					}
				})
			}
			w.Network.Partition("seed")
			w.Network.Crash("host4")
			time.Sleep(2 * time.Second) // The others wait for the view without it.
			if err := nodes[3].Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * time.Second)
			w.Network.Heal()
			working.Wait()
		})
	}
}
