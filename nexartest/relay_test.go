package nexartest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/nexartest"
)

// sparse forms a world of n nodes of a topology in a bubble, and calls f with it.
func sparse(t *testing.T, topology string, n int, f func(t *testing.T, w *nexartest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, nexartest.Cluster{Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}}.New(t, n))
	})
}

// wantAll waits for the programs of all nodes, which must return no error.
func wantAll(t *testing.T, w *nexartest.World) {
	t.Helper()
	for i, err := range w.Wait() {
		if err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
}

// TestRelayOpposite: opposite ranks of a ring exchange messages over two relays.
func TestRelayOpposite(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	sparse(t, "k-regular:2", 6, func(t *testing.T, w *nexartest.World) {
		w.Start(func(ctx context.Context, n *nexar.Node) error {
			c := n.World()
			opposite := (c.Rank() + 3) % 6
			for _, size := range []int{1, 1 << 10, 1 << 20} {
				x, y := make([]int64, size), make([]int64, size)
				for i := range x {
					x[i] = int64(c.Rank() + i)
				}
				if err := exchange(ctx, c, opposite, x, y); err != nil {
					return err
				}
				for i := range y {
					if y[i] != int64(opposite+i) {
						return fmt.Errorf("element %d of %d is %d, want %d", i, size, y[i], opposite+i)
					}
				}
			}
			return nil
		})
		wantAll(t, w)
	})
}

// exchange sends x to a rank and receives y from it.
func exchange(ctx context.Context, c *nexar.Comm, peer int, x, y []int64) error {
	sent := make(chan error, 1)
	go func() { sent <- nexar.Send(ctx, c, x, peer, 1) }()
	if _, err := nexar.Recv(ctx, c, y, peer, 1); err != nil {
		return err
	}
	return <-sent
}

// collectives returns calls of all ranks of a communicator, which check the results.
func collectives() map[string]func(ctx context.Context, c *nexar.Comm) error {
	return map[string]func(ctx context.Context, c *nexar.Comm) error{
		"barrier":        func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) },
		"all-to-all":     allToAll,
		"gather":         gather,
		"broadcast":      broadcast,
		"all-reduce":     allReduce,
		"reduce-scatter": reduceScatter,
		"split":          split,
	}
}

// TestRelayCollectives: the collectives of worlds of sparse topologies give the right results.
func TestRelayCollectives(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	run := func(name, topology string, nodes int, calls ...string) {
		t.Run(topology+"/"+name, func(t *testing.T) {
			sparse(t, topology, nodes, func(t *testing.T, w *nexartest.World) {
				start := time.Now()
				w.Start(func(ctx context.Context, n *nexar.Node) error { return callEach(ctx, n.World(), calls...) })
				wantAll(t, w)
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("the nodes have ended after %v", took)
				}
			})
		})
	}
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		for name := range collectives() {
			run(name, topology, 8, name)
		}
	}
	for _, topology := range []string{"k-regular:6", "hypercube"} {
		run("16 nodes", topology, 16, "all-reduce", "broadcast", "barrier", "reduce-scatter")
	}
}

const blockLength = 3000

// blocks returns a block for each rank, with values of the rank that has the vector.
func blocks(c *nexar.Comm) []int64 {
	x := make([]int64, c.Size()*blockLength)
	for i := range x {
		x[i] = int64(i/blockLength*1000 + c.Rank())
	}
	return x
}

func allToAll(ctx context.Context, c *nexar.Comm) error {
	y := make([]int64, c.Size()*blockLength)
	if err := nexar.AllToAll(ctx, c, y, blocks(c)); err != nil {
		return err
	}
	return want(y, func(i int) int64 { return int64(c.Rank()*1000 + i/blockLength) })
}

func gather(ctx context.Context, c *nexar.Comm) error {
	y := make([]int64, c.Size()*blockLength)
	if err := nexar.Gather(ctx, c, y, blocks(c)[:blockLength], 0); err != nil || c.Rank() > 0 {
		return err
	}
	return want(y, func(i int) int64 { return int64(i / blockLength) })
}

func broadcast(ctx context.Context, c *nexar.Comm) error {
	for root := range c.Size() {
		x := slices.Repeat([]int64{int64(c.Rank())}, 10_000)
		if err := nexar.Broadcast(ctx, c, x, root); err != nil {
			return err
		}
		if err := want(x, func(int) int64 { return int64(root) }); err != nil {
			return err
		}
	}
	return nil
}

func allReduce(ctx context.Context, c *nexar.Comm) error {
	x := slices.Repeat([]int64{int64(c.Rank())}, 100_000)
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
		return err
	}
	return want(x, func(int) int64 { return int64(c.Size() * (c.Size() - 1) / 2) })
}

func reduceScatter(ctx context.Context, c *nexar.Comm) error {
	y := make([]int64, blockLength)
	if err := nexar.ReduceScatter(ctx, c, y, blocks(c), nexar.Sum); err != nil {
		return err
	}
	return want(y, func(int) int64 { return int64(c.Size()*c.Rank()*1000 + c.Size()*(c.Size()-1)/2) })
}

// split calls collectives on the two halves of a communicator.
func split(ctx context.Context, c *nexar.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, c.Rank())
	if err != nil {
		return err
	}
	defer half.Close()
	return check(ctx, half)
}

// check calls several collectives.
func check(ctx context.Context, c *nexar.Comm) error {
	return callEach(ctx, c, "all-to-all", "barrier", "gather", "all-reduce")
}

// callEach makes calls of [collectives].
func callEach(ctx context.Context, c *nexar.Comm, calls ...string) error {
	for _, name := range calls {
		if err := collectives()[name](ctx, c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func want(x []int64, want func(i int) int64) error {
	for i := range x {
		if x[i] != want(i) {
			return fmt.Errorf("element %d of %d is %d, want %d", i, len(x), x[i], want(i))
		}
	}
	return nil
}

// without returns the communicator of all nodes but one, or nil on that node.
func without(ctx context.Context, c *nexar.Comm, victim int) (*nexar.Comm, error) {
	color := 0
	if c.Rank() == victim {
		color = -1
	}
	return c.Split(ctx, color, c.Rank())
}

// TestRelayDies: a relay dies while messages pass it, on a communicator without it. They arrive once and in order over the
// alternative hop, and the communicator works on.
func TestRelayDies(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		for _, after := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", topology, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := nexartest.Cluster{
						Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond, Rate: 20_000_000},
					}.New(t, 8)
					victim := w.Node(0).Neighbors()[0]
					start := make(chan struct{})
					w.Start(func(ctx context.Context, n *nexar.Node) error {
						part, err := without(ctx, n.World(), victim)
						if err != nil {
							return err
						}
						if part == nil {
							close(start)
							<-ctx.Done()
							return ctx.Err()
						}
						defer part.Close()
						if err := stream(ctx, part); err != nil {
							return err
						}
						return check(ctx, part)
					})
					<-start
					time.Sleep(after)
					w.Kill(victim)
					for i, err := range w.Wait() {
						if err != nil && i != victim {
							t.Errorf("node %d: %v", i, err)
						}
					}
				})
			})
		}
	}
}

// stream sends messages of several lengths from rank 0 to all others, and checks their order and content.
func stream(ctx context.Context, c *nexar.Comm) error {
	const messages = 30
	length := func(i int) int { return 1 + i*i*i%20_000 }
	if c.Rank() > 0 {
		x := make([]int64, length(messages)+20_000)
		for i := range messages {
			s, err := nexar.Recv(ctx, c, x, 0, 7)
			if err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			if s.Count != length(i) || x[0] != int64(i) || x[s.Count-1] != int64(i) {
				return fmt.Errorf("message %d has %d elements from %d to %d, want %d", i, s.Count, x[0], x[s.Count-1], length(i))
			}
		}
		return nil
	}
	for i := range messages {
		for to := 1; to < c.Size(); to++ {
			if err := nexar.Send(ctx, c, slices.Repeat([]int64{int64(i)}, length(i)), to, 7); err != nil {
				return fmt.Errorf("message %d to rank %d: %w", i, to, err)
			}
		}
	}
	return nil
}

// TestRelayCalls: ranks that are not neighbors call each other.
func TestRelayCalls(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	sparse(t, "k-regular:2", 8, func(t *testing.T, w *nexartest.World) {
		w.Start(func(ctx context.Context, n *nexar.Node) error {
			c := n.World()
			c.Register("double", func(_ context.Context, from int, args []byte) ([]byte, error) {
				return append(args, args...), nil
			})
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			for to := range c.Size() {
				got, err := c.Call(ctx, to, "double", []byte{byte(c.Rank()), byte(to)})
				if want := []byte{byte(c.Rank()), byte(to), byte(c.Rank()), byte(to)}; err != nil || !slices.Equal(got, want) {
					return fmt.Errorf("call of rank %d: %v, %v", to, got, err)
				}
			}
			return c.Barrier(ctx)
		})
		wantAll(t, w)
	})
}

// TestRelayConnections: an hour of random messages and collectives leaves each node with connections to its neighbors
// alone, and no node counts as failed.
func TestRelayConnections(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(topology, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := nexartest.Cluster{
					Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}, Timeout: 2 * time.Hour,
				}.New(t, 9)
				seed := w.Rand.Uint64()
				w.Start(func(ctx context.Context, n *nexar.Node) error {
					c := n.World()
					random := rand.New(rand.NewPCG(seed, 1)) // The same on all ranks.
					for range 60 {
						from, to, size := random.IntN(c.Size()), random.IntN(c.Size()), random.IntN(100_000)
						x := slices.Repeat([]int64{int64(size)}, size)
						switch {
						case from == to:
							if err := c.Barrier(ctx); err != nil {
								return err
							}
						case c.Rank() == from:
							if err := nexar.Send(ctx, c, x, to, 1); err != nil {
								return err
							}
						case c.Rank() == to:
							y := make([]int64, size)
							if _, err := nexar.Recv(ctx, c, y, from, 1); err != nil || !slices.Equal(x, y) {
								return fmt.Errorf("message of %d elements from rank %d to %d: %v", size, from, to, err)
							}
						}
						time.Sleep(time.Minute)
					}
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					near := n.Neighbors()
					for _, p := range n.Peers() {
						if isNear := slices.Contains(near, p.Rank); (p.Transport != "relay") != isNear || (p.Hops == 1) != isNear {
							return fmt.Errorf("connection %+v, neighbor: want %v", p, isNear)
						}
						if p.Hops > 1 && (!slices.Contains(near, p.Relay) || p.LinkPurpose != "" && p.Delay < time.Duration(2*p.Hops)*time.Millisecond) {
							return fmt.Errorf("connection %+v: the first relay must be one of %v, and the delay at least 2 ms for each hop", p, near)
						}
					}
					return c.Barrier(ctx)
				})
				wantAll(t, w)
			})
		})
	}
}

// TestRelayKills: worlds of sparse topologies lose one random node after the other while they exchange data, and go on each
// time with the others.
func TestRelayKills(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		worlds := uint64(1)
		if require.AllTrials() {
			worlds = 2
		}
		for random := range worlds {
			t.Run(fmt.Sprintf("%s/%d", topology, random+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := nexartest.Cluster{
						Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}, Random: random + 1,
					}.New(t, 12)
					j := newJob()
					j.pause = 200 * time.Millisecond
					w.Start(j.run)
					killed := make(map[int]bool)
					for range 5 {
						time.Sleep(time.Duration(w.Rand.IntN(15_000)) * time.Millisecond)
						victim := w.Rand.IntN(12)
						if killed[victim] {
							continue
						}
						killed[victim] = true
						w.Kill(victim)
					}
					j.awaitSum(int64(12 - len(killed)))
					r := j.finish(t, w)
					for i, err := range r.errs {
						if err != nil && !killed[i] {
							t.Errorf("node %d has ended with %v", i, err)
						}
					}
					if last := r.views[len(r.views)-1]; len(last) != 12-len(killed) {
						t.Errorf("killed %v, views %v", killed, r.views)
					}
				})
			})
		}
	}
}
