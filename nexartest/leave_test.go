package nexartest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/nexartest"
)

// A leaving is an order in which the ranks send to rank 0 and leave.
type leaving struct {
	name string
	// wait returns the time before a rank sends.
	wait func(rank int, random *rand.Rand) time.Duration
}

func leavings() []leaving {
	return []leaving{
		{"at once", func(int, *rand.Rand) time.Duration { return 0 }},
		{"near ranks first", func(rank int, _ *rand.Rand) time.Duration { return time.Duration(rank) * 40 * time.Millisecond }},
		{"at random", func(_ int, random *rand.Rand) time.Duration {
			return time.Duration(random.IntN(800)) * time.Millisecond
		}},
		{"far apart", func(_ int, random *rand.Rand) time.Duration { return time.Duration(random.IntN(20)) * time.Second }},
	}
}

// leavesVariable is the number of worlds of TestSendAndLeave for each topology, number of ranks, order and size; firstVariable is the
// random seed of the first.
const leavesVariable, firstVariable = "LEAVES", "FIRST"

// TestSendAndLeave: every rank sends to rank 0 and leaves. Relays leave as well, and no message is lost. LEAVES=200 runs that many
// worlds of each kind, and FIRST=7 is the random seed of the first.
func TestSendAndLeave(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	worlds, first := number(t, leavesVariable, 0), number(t, firstVariable, 0)
	for _, topology := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube", "full"} {
		numbers := []int{8, 12, 24, 32}
		if worlds == 0 && !require.AllTrials() {
			numbers = numbers[:2]
		}
		for _, n := range numbers {
			sizes := []int{3000}
			if n == 8 {
				sizes = []int{8, 3000, 1 << 20}
			}
			orders := leavings()
			if worlds == 0 && topology != "hypercube" && (topology != "k-regular:2" && topology != "k-regular:3" || n != 12) {
				orders = orders[:1]
			}
			for i, order := range orders {
				if (worlds > 0 || topology == "hypercube") && i > 0 {
					sizes = sizes[:1]
				}
				for _, size := range sizes {
					t.Run(fmt.Sprintf("%s/%d/%s/%d", topology, n, order.name, size), func(t *testing.T) {
						for k := uint64(0); k < max(worlds, 1) && !t.Failed(); k++ {
							sendAndLeave(t, topology, n, size, order, (first+k)<<16+uint64(i+n))
						}
					})
				}
			}
		}
	}
}

func sendAndLeave(t *testing.T, topology string, n, size int, order leaving, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.Cluster{
			Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}, Random: seed,
		}.New(t, n)
		w.Start(func(ctx context.Context, nd *nexar.Node) error {
			c := nd.World()
			data := make([]byte, size)
			if c.Rank() != 0 {
				time.Sleep(order.wait(c.Rank(), rand.New(rand.NewPCG(seed, uint64(c.Rank())))))
				for i := range data {
					data[i] = byte(c.Rank() + i)
				}
				return nexar.Send(ctx, c, data, 0, 1)
			}
			for from := 1; from < c.Size(); from++ {
				if _, err := nexar.Recv(ctx, c, data, from, 1); err != nil {
					return err
				}
				for i, x := range data {
					if x != byte(from+i) {
						return fmt.Errorf("byte %d of rank %d is %d, want %d", i, from, x, byte(from+i))
					}
				}
			}
			return nil
		})
		wantAll(t, w)
	})
}

// TestLeaveAfterNeighborsChanged: a node leaves at once after it got other neighbors. The connection to a former neighbor may end before that has
// acknowledged everything, and the neighbors may end theirs before there is one over relays. Close waits for none that cannot come.
func TestLeaveAfterNeighborsChanged(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for after := range 6 {
		synctest.Test(t, func(t *testing.T) {
			w := nexartest.Cluster{
				Config: nexar.Config{Topology: "hypercube"}, Link: nexartest.Link{Delay: time.Millisecond}, Random: uint64(after),
			}.New(t, 3)
			leaver := w.Node(1).ID()
			w.Start(func(ctx context.Context, n *nexar.Node) error {
				var leaves sync.WaitGroup
				defer leaves.Wait()
				for c, err := range n.Epochs(ctx) {
					if err != nil {
						return err
					}
					if n.ID() == leaver && c.Size() == 4 {
						leaves.Go(func() {
							time.Sleep(time.Duration(after) * 5 * time.Millisecond)
							if err := n.Leave(ctx); err != nil {
								t.Error(err)
							}
						})
					}
					for {
						isLast := c.Epoch() > 2 && c.Size() == 3
						if err := nexar.AllReduce(ctx, c, []int64{1}, nexar.Sum); err != nil {
							return err
						}
						if changed, err := n.Reconfigure(ctx); err != nil {
							return err
						} else if changed {
							break
						}
						if isLast {
							return nil
						}
						time.Sleep(time.Millisecond)
					}
				}
				began := time.Now()
				if err := n.Close(); err != nil {
					return err
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("a node that leaves %d ms after the change needs %v to close", 5*after, took)
				}
				return nil
			})
			time.Sleep(100 * time.Millisecond)
			w.Add()
			wantAll(t, w)
		})
	}
}
