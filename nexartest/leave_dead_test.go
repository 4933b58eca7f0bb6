package nexartest_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestLeavesAfterADeath: a node of a sparse world dies, and another one leaves before this is noticed. Its goodbye to the dead node delays its
// report to the seed. The others wait for the view without it.
func TestLeavesAfterADeath(t *testing.T) {
	const n, victim, leaver = 6, 0, 4
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.Cluster{Config: nexar.Config{Topology: "k-regular:2"}, Link: nexartest.Link{Delay: time.Millisecond}}.New(t, n)
		j := newJob()
		w.Start(func(ctx context.Context, nd *nexar.Node) error {
			if nd.World().Rank() == leaver {
				time.Sleep(time.Second + 4985*time.Millisecond)
				return nil
			}
			return j.run(ctx, nd)
		})
		time.Sleep(time.Second)
		w.Kill(victim)
		for end := time.Now().Add(time.Minute); !j.hasSum(n-2) && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		for i, err := range j.finish(t, w).errs {
			if err != nil && i != victim {
				t.Errorf("node %d has ended with %v", i, err)
			}
		}
	})
}

// TestLeavesWithoutRelays: both neighbors of a node die, and its other peers leave before this is noticed. They are its neighbors in the next
// view, since they have not told the seed, but they do not accept its connections any more. The node stays in the world.
func TestLeavesWithoutRelays(t *testing.T) {
	leavesAt := map[int]time.Duration{2: 3400 * time.Millisecond, 3: 20 * time.Millisecond}
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.Cluster{Config: nexar.Config{Topology: "k-regular:2"}, Link: nexartest.Link{Delay: time.Millisecond}}.New(t, 5)
		dead := w.Node(0).Neighbors()
		if !slices.Equal(dead, []int{1, 4}) {
			t.Fatalf("the neighbors of rank 0 are %v, want 1 and 4", dead)
		}
		j := newJob()
		w.Start(func(ctx context.Context, nd *nexar.Node) error {
			c := nd.World()
			after, leaves := leavesAt[c.Rank()]
			if !leaves {
				return j.run(ctx, nd)
			}
			time.Sleep(time.Second + after)
			return nexar.Send(ctx, c, []int64{1}, 0, 5)
		})
		time.Sleep(time.Second)
		for _, rank := range dead {
			w.Kill(rank)
		}
		for end := time.Now().Add(time.Minute); !j.hasSum(1) && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		if err := j.finish(t, w).errs[0]; err != nil {
			t.Errorf("node 0 has ended with %v", err)
		}
	})
}
