package nexartest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
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
		j.awaitSum(n - 2)
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
		j.awaitSum(1)
		if err := j.finish(t, w).errs[0]; err != nil {
			t.Errorf("node 0 has ended with %v", err)
		}
	})
}

// TestRandomLeaves: one or two nodes of a sparse world die, and some others leave before or after this is noticed; half of them send
// messages first. The rest stay in the world and go on. WORLDS is the number of worlds,
// by default three, or eight with TRIALS=all, FIRST the number of the first one.
func TestRandomLeaves(t *testing.T) {
	always := uint64(3)
	switch {
	case require.AllTrials():
		always = 8
	case require.Race:
		always = 1
	}
	worlds, first := number(t, "WORLDS", always), number(t, firstVariable, 0)
	for k := first; k < first+worlds; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) { leaveAtRandom(t, k) })
	}
}

// number returns the number in an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

func leaveAtRandom(t *testing.T, world uint64) {
	random := rand.New(rand.NewPCG(world, 99))
	topologies := []string{"k-regular:2", "k-regular:2", "k-regular:4", "hypercube"}
	topology, n, kills := topologies[random.IntN(len(topologies))], 5+random.IntN(8), 1+random.IntN(2)
	order := random.Perm(n)
	stay := order[kills+1+random.IntN(n-kills-1):]
	leavesAt := make(map[int]time.Duration)
	for _, rank := range order[kills : n-len(stay)] {
		leavesAt[rank] = time.Duration(random.IntN(5500)) * time.Millisecond
		if random.IntN(2) == 0 {
			leavesAt[rank] = time.Duration(random.IntN(50)) * time.Millisecond
		}
	}
	sends := random.IntN(2) == 0
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.Cluster{
			Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}, Random: world + 1,
		}.New(t, n)
		j := newJob()
		w.Start(func(ctx context.Context, nd *nexar.Node) error {
			c := nd.World()
			after, leaves := leavesAt[c.Rank()]
			if !leaves {
				return j.run(ctx, nd)
			}
			time.Sleep(time.Second + after)
			for _, rank := range stay {
				if sends {
					// The communicator may have ended because of a death.
					_ = nexar.Send(ctx, c, []int64{1}, rank, 5)
				}
			}
			return nil
		})
		time.Sleep(time.Second)
		for _, rank := range order[:kills] {
			w.Kill(rank)
		}
		time.Sleep(30 * time.Second) // A node that goes on may be removed later.
		j.awaitSum(int64(len(stay)))
		r := j.finish(t, w)
		for _, rank := range stay {
			if err := r.errs[rank]; err != nil {
				t.Errorf("%s of %d, %v die, %v leave: node %d has ended with %v", topology, n, order[:kills], leavesAt, rank, err)
			}
		}
		if last := r.views[len(r.views)-1]; len(last) != len(stay) {
			t.Errorf("%s of %d, %v die, %v leave: the last view is %v, want ranks %v of the first", topology, n, order[:kills], leavesAt, last, stay)
		}
	})
}
