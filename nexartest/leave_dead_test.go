package nexartest_test

import (
	"context"
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
