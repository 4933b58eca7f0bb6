package faults

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// simNodes runs f in fake time with n nodes that have joined at a seed, in the order of
// their ranks. Rank r is on the host simHost(r). The context ends after some minutes of
// fake time.
func simNodes(t *testing.T, n int, recovery nexar.RecoveryPolicy, f func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node)) {
	t.Helper()
	simNodesOf(t, n, func(rank int) nexar.Config { return simConfig(recovery, &rank) }, f)
}

// simNodesOf is simNodes with the Config of each rank.
func simNodesOf(t *testing.T, n int, config func(rank int) nexar.Config, f func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, n)
		defer w.Close()
		nodes := make([]*nexar.Node, n)
		err := worldtest.ForEach(n, func(rank int) (err error) {
			nodes[rank], err = w.Join(simHost(rank), config(rank))
			return err
		})
		defer func() {
			_ = worldtest.ForEach(n, func(rank int) error {
				if nodes[rank] == nil {
					return nil
				}
				return nodes[rank].Close()
			})
		}()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		f(ctx, t, w, nodes)
	})
}

func simHost(rank int) string { return fmt.Sprintf("host%d", rank) }

// noticed is the longest time until the other nodes detect the crash of a host: the
// HeartbeatTimeout of SimCluster.Join and a second.
const noticed = 2 * time.Second

// sumUntilFailure runs all-reduces on c until one fails.
func sumUntilFailure(ctx context.Context, c *nexar.Comm) error {
	for {
		x := []int64{int64(c.Rank()) + 1}
		if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
			return err
		}
		if want := int64(c.Size()) * int64(c.Size()+1) / 2; x[0] != want {
			return fmt.Errorf("%w: the sum is %d, want %d", errWrong, x[0], want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// failureOf checks that err is the failure of this rank and of no other.
func failureOf(err error, rank int, node nexar.NodeID) error {
	p, ok := errors.AsType[*nexar.PeerError](err)
	switch {
	case !ok:
		return fmt.Errorf("error %w, want a *PeerError", err)
	case p.Suspects != nil:
		return fmt.Errorf("error %w has suspects, want the failure of rank %d alone", err, rank)
	case p.Rank != rank || p.Node != node || p.Left || !errors.Is(err, nexar.ErrPeerFailed):
		return fmt.Errorf("error %w of rank %d, node %v (left: %v), want the failure of rank %d, node %v", err, p.Rank, p.Node, p.Left, rank, node)
	}
	return nil
}

// TestFailureWatchYields: Failures yields a crash once on every other rank, with the rank and the
// ID of the failed node, also in a loop that starts later. The loop ends when its node is closed.
func TestFailureWatchYields(t *testing.T) {
	simNodes(t, 3, nexar.Automatic, func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node) {
		const victim = 1
		began := time.Now()
		w.Network.Crash(simHost(victim))
		watch := func(n *nexar.Node) error {
			for p, err := range n.Failures(ctx) {
				if err == nil {
					err = failureOf(p, victim, nodes[victim].ID())
				}
				return err
			}
			return errors.New("the loop has ended without a failure")
		}
		for range 2 {
			err := worldtest.ForEach(2, func(i int) error { return watch(nodes[2*i]) })
			if err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > noticed {
				t.Errorf("the failure was detected after %v, want at most %v", took, noticed)
			}
		}
		counts := make(chan int)
		go func() {
			n := 0
			for range nodes[0].Failures(ctx) {
				n++
			}
			counts <- n
		}()
		time.Sleep(time.Minute)
		nodes[0].Close()
		if n := <-counts; n != 1 {
			t.Errorf("got %d failures, want 1", n)
		}
	})
}

// TestAbortEndToEnd: with the policy Abort, after a crash the operations and then Epochs end on
// all other nodes, with the failure of the crashed node. None continues in a smaller world.
func TestAbortEndToEnd(t *testing.T) {
	simNodes(t, 4, nexar.Abort, func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node) {
		const victim = 2
		began := time.Now()
		time.AfterFunc(time.Second, func() { w.Network.Crash(simHost(victim)) })
		err := worldtest.ForEach(4, func(rank int) error {
			if rank == victim {
				return nil
			}
			yields := 0
			for c, err := range nodes[rank].Epochs(ctx) {
				if err != nil {
					if took := time.Since(began); took > time.Second+noticed {
						return fmt.Errorf("rank %d: Epochs ended after %v, want at most %v", rank, took, time.Second+noticed)
					}
					return failureOf(err, victim, nodes[victim].ID())
				}
				if yields++; yields > 1 {
					return fmt.Errorf("rank %d continues in a world of %d", rank, c.Size())
				}
				if err := failureOf(sumUntilFailure(ctx, c), victim, nodes[victim].ID()); err != nil {
					return fmt.Errorf("rank %d: all-reduce: %w", rank, err)
				}
			}
			return fmt.Errorf("rank %d: Epochs ended without an error", rank)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestExcludeAfterCrash: with the policy Manual, the remaining ranks exclude a crashed rank and
// continue with correct results, and do so again after the next crash.
func TestExcludeAfterCrash(t *testing.T) {
	simNodes(t, 5, nexar.Manual, func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node) {
		left := []int{0, 1, 2, 3, 4} // the nodes of the world, by rank
		for _, victim := range []int{2, 0} {
			gone := slices.Index(left, victim)
			size := len(left)
			time.AfterFunc(time.Second, func() { w.Network.Crash(simHost(victim)) })
			survivors := slices.Delete(slices.Clone(left), gone, gone+1)
			sum := int64(0)
			for _, s := range survivors {
				sum += int64(s)
			}
			err := worldtest.ForEach(len(survivors), func(i int) error {
				n := nodes[survivors[i]]
				world := n.World()
				if err := failureOf(sumUntilFailure(ctx, world), gone, nodes[victim].ID()); err != nil {
					return fmt.Errorf("all-reduce: %w", err)
				}
				for c, err := range n.Epochs(ctx) {
					if err != nil {
						if err := failureOf(err, gone, nodes[victim].ID()); err != nil {
							return fmt.Errorf("epochs: %w", err)
						}
					} else if c != world {
						return fmt.Errorf("Epochs yielded a world of %d before Exclude", c.Size())
					}
				}
				c, err := world.Exclude(ctx, []int{gone})
				if err != nil {
					return err
				}
				want := nexar.WorldChange{Epoch: c.Epoch(), OldSize: size, Size: size - 1, OldRank: world.Rank(), Rank: i, Removed: []int{gone}}
				if got := c.Change(); !reflect.DeepEqual(got, want) {
					return fmt.Errorf("recovery: %+v, want %+v", got, want)
				}
				x := []int64{int64(survivors[i])}
				if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
					return err
				}
				if x[0] != sum {
					return fmt.Errorf("the sum is %d, want %d", x[0], sum)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			left = survivors
		}
	})
}

// TestUnknownCause: two ranks crash at once. Errors list both, in operations and in Comm.Err, and the
// other ranks continue without them.
func TestUnknownCause(t *testing.T) {
	simNodes(t, 5, nexar.Automatic, func(ctx context.Context, t *testing.T, w *worldtest.SimCluster, nodes []*nexar.Node) {
		victims := []int{3, 1}
		time.AfterFunc(time.Second, func() {
			for _, victim := range victims {
				w.Network.Crash(simHost(victim))
			}
		})
		err := worldtest.ForEach(5, func(rank int) error {
			if slices.Contains(victims, rank) {
				return nil
			}
			for c, err := range nodes[rank].Epochs(ctx) {
				if err != nil {
					return err
				}
				if c.Size() == 3 {
					break
				}
				if err := wantSuspects(sumUntilFailure(ctx, c), nodes, 1, 3); err != nil {
					return err
				}
				if err := wantSuspects(c.Err(), nodes, 1, 3); err != nil {
					return err
				}
				if r, ok := errors.AsType[*nexar.RevokedError](c.Err()); !ok || r.Rank != -1 {
					return fmt.Errorf("Comm.Err is %w, want a RevokedError of rank -1", c.Err())
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// wantSuspects checks that the cause of err is unknown, and its suspects.
func wantSuspects(err error, nodes []*nexar.Node, ranks ...int) error {
	p, ok := errors.AsType[*nexar.PeerError](err)
	if !ok || len(p.Suspects) != len(ranks) || !slices.Contains(ranks, p.Rank) || !errors.Is(err, nexar.ErrPeerFailed) {
		return fmt.Errorf("error %w, want the suspects %v", err, ranks)
	}
	for i, s := range p.Suspects {
		text := fmt.Sprintf("rank %d (node %v at %s): ", ranks[i], s.Node, s.Addr)
		if s.Rank != ranks[i] || s.Node != nodes[s.Rank].ID() || s.Err == nil || !worldtest.HasText(err, text) || !worldtest.HasText(err, "the cause is unknown") {
			return fmt.Errorf("error %w, suspect %+v, want rank %d, node %v", err, s, ranks[i], nodes[ranks[i]].ID())
		}
	}
	return nil
}

// TestBroadcastOfDeadRoot: if the root of a broadcast crashes before or during it, all other
// ranks get the failure of the root, with every algorithm.
func TestBroadcastOfDeadRoot(t *testing.T) {
	const ranks, root = 5, 3
	for _, a := range plan.Algorithms(plan.Broadcast) {
		for _, after := range []time.Duration{-1, 0, 1500 * time.Microsecond} {
			t.Run(fmt.Sprintf("%s/%v", a.Name, after), func(t *testing.T) {
				worldtest.InFakeTime(t, ranks, func(t *testing.T, w *worldtest.World, network *sim.Network) {
					world := w.Comms
					crash := func() { network.Crash(w.Host(root)) }
					switch {
					case after < 0:
						crash()
						time.Sleep(time.Minute) // until all nodes have detected the failure
					case after == 0:
						crash()
					default:
						time.AfterFunc(after, crash)
					}
					worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
						if err := c.SetAlgorithms("broadcast=" + a.Name); err != nil {
							return err
						}
						if rank == root && after <= 0 {
							return nil
						}
						err := nexar.Broadcast(t.Context(), c, make([]float32, 1<<18), root)
						if rank == root {
							return nil // the root is cut off from the others
						}
						if err := failureOf(err, root, w.ID(root)); err != nil {
							return fmt.Errorf("rank %d: %w", rank, err)
						}
						return nil
					})
				})
			})
		}
	}
}
