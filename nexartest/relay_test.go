package nexartest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
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

// TestRelayCollectives: the collectives of worlds of sparse topologies give the right results, and all nodes keep
// connections to their neighbors only.
func TestRelayCollectives(t *testing.T) {
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		t.Run(topology, func(t *testing.T) {
			sparse(t, topology, 8, func(t *testing.T, w *nexartest.World) {
				start := time.Now()
				w.Start(func(ctx context.Context, n *nexar.Node) error { return collectives(ctx, n.World()) })
				wantAll(t, w)
				t.Logf("%v of fake time", time.Since(start))
			})
		})
	}
}

// collectives calls collectives on a communicator, and on the two halves of it.
func collectives(ctx context.Context, c *nexar.Comm) error {
	if err := check(ctx, c); err != nil {
		return err
	}
	half, err := c.Split(ctx, c.Rank()%2, c.Rank())
	if err != nil {
		return fmt.Errorf("split: %w", err)
	}
	defer half.Close()
	return check(ctx, half)
}

func check(ctx context.Context, c *nexar.Comm) error {
	n, rank := c.Size(), c.Rank()
	const m = 3000
	x := make([]int64, n*m)
	for i := range x {
		x[i] = int64(i/m*1000 + rank)
	}
	y := make([]int64, n*m)
	if err := nexar.AllToAll(ctx, c, y, x); err != nil {
		return fmt.Errorf("all-to-all: %w", err)
	}
	for i := range y {
		if want := int64(rank*1000 + i/m); y[i] != want {
			return fmt.Errorf("all-to-all: element %d is %d, want %d", i, y[i], want)
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	if err := nexar.Gather(ctx, c, y, x[:m], 0); err != nil {
		return fmt.Errorf("gather: %w", err)
	}
	if rank == 0 && !slices.Equal(y[(n-1)*m:], slices.Repeat([]int64{int64(n - 1)}, m)) {
		return fmt.Errorf("gather: the last block begins with %d", y[(n-1)*m])
	}
	sum := slices.Repeat([]int64{int64(rank)}, 100_000)
	if err := nexar.AllReduce(ctx, c, sum, nexar.Sum); err != nil {
		return fmt.Errorf("all-reduce: %w", err)
	}
	if want := int64(n * (n - 1) / 2); !slices.Equal(sum, slices.Repeat([]int64{want}, len(sum))) {
		return fmt.Errorf("all-reduce: %d, want %d", sum[0], want)
	}
	return nil
}
