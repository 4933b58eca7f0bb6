package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar"
)

// An operation is executed by all ranks together on vectors of n elements. It checks the result.
type operation func(ctx context.Context, c *nexar.Comm, n, round int) error

func operations() map[string]operation {
	return map[string]operation{
		"all_reduce": allReduce,
		"barrier":    func(ctx context.Context, c *nexar.Comm, _, _ int) error { return c.Barrier(ctx) },
		"ring":       ring,
		"reduce":     reduce,
		"all_to_all": allToAll,
		"send": func(ctx context.Context, c *nexar.Comm, n, _ int) error {
			return nexar.Send(ctx, c, make([]int64, n), (c.Rank()+1)%c.Size(), 1)
		},
		"recv": func(ctx context.Context, c *nexar.Comm, n, _ int) error {
			_, err := nexar.Recv(ctx, c, make([]int64, n), nexar.AnyRank, nexar.AnyTag)
			return err
		},
	}
}

// value returns element i of the vector of a rank. All elements of a round differ.
func value(rank, i, round int) int64 { return int64(rank+1)*1_000_003 + int64(i)*17 + int64(round) }

func vector(rank, n, round int) []int64 {
	x := make([]int64, n)
	for i := range x {
		x[i] = value(rank, i, round)
	}
	return x
}

// sum returns element i of the sum of the vectors of the ranks below n.
func sum(n, i, round int) int64 {
	return int64(n*(n+1)/2)*1_000_003 + int64(n)*(int64(i)*17+int64(round))
}

// equal compares a result with want, element by element.
func equal(what string, got []int64, want func(i int) int64) error {
	for i, x := range got {
		if x != want(i) {
			return fmt.Errorf("%s: element %d of %d is %d, want %d", what, i, len(got), x, want(i))
		}
	}
	return nil
}

func allReduce(ctx context.Context, c *nexar.Comm, n, round int) error {
	x := vector(c.Rank(), n, round)
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
		return err
	}
	return equal("all_reduce", x, func(i int) int64 { return sum(c.Size(), i, round) })
}

// timeReduces times all-reduces of one vector. The ranks begin each after a barrier. The results are checked.
func timeReduces(ctx context.Context, s *workerState, o command, r *result) error {
	c := s.comm()
	x := make([]int64, o.N)
	for ; r.Rounds < o.Rounds; r.Rounds++ {
		for i := range x {
			x[i] = value(c.Rank(), i, r.Rounds)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		began := time.Now()
		if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
			return err
		}
		r.Times = append(r.Times, time.Since(began))
		if err := equal("all_reduce", x, func(i int) int64 { return sum(c.Size(), i, r.Rounds) }); err != nil {
			return err
		}
	}
	return nil
}

// ring sends a vector to the next rank and receives the vector of the previous rank.
func ring(ctx context.Context, c *nexar.Comm, n, round int) error {
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sent := make(chan error, 1)
	go func() { sent <- nexar.Send(ctx, c, vector(c.Rank(), n, round), next, 5) }()
	x := make([]int64, n)
	_, err := nexar.Recv(ctx, c, x, prev, 5)
	if err2 := <-sent; err == nil {
		err = err2
	}
	if err != nil {
		return err
	}
	return equal("ring", x, func(i int) int64 { return value(prev, i, round) })
}

// checkWorld calls every collective, with vectors shorter and longer than payloads without a grant, and
// sends messages between all pairs of ranks.
func checkWorld(ctx context.Context, c *nexar.Comm, round int) error {
	for _, n := range []int{1, 1001, 20_011} {
		for _, f := range []operation{
			allReduce, broadcast, reduce, allReduceFunc, gather, allGather, scatter, reduceScatter, allToAll, scan, exclusiveScan,
		} {
			if err := f(ctx, c, n, round); err != nil {
				return fmt.Errorf("%d elements: %w", n, err)
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if err := pingPong(ctx, c, n, round); err != nil {
			return fmt.Errorf("ping-pong with %d elements: %w", n, err)
		}
	}
	return nil
}

func broadcast(ctx context.Context, c *nexar.Comm, n, round int) error {
	for root := range c.Size() {
		x := vector(c.Rank(), n, round)
		if err := nexar.Broadcast(ctx, c, x, root); err != nil {
			return err
		}
		if err := equal("broadcast", x, func(i int) int64 { return value(root, i, round) }); err != nil {
			return err
		}
	}
	return nil
}

func reduce(ctx context.Context, c *nexar.Comm, n, round int) error {
	root := round % c.Size()
	x := vector(c.Rank(), n, round)
	if err := nexar.Reduce(ctx, c, x, nexar.Sum, root); err != nil {
		return err
	}
	return equal("reduce", x, func(i int) int64 {
		if c.Rank() == root {
			return sum(c.Size(), i, round)
		}
		return value(c.Rank(), i, round)
	})
}

func allReduceFunc(ctx context.Context, c *nexar.Comm, n, round int) error {
	x := vector(c.Rank(), n, round)
	err := nexar.AllReduceFunc(ctx, c, x, func(dst, src []int64) {
		for i := range dst {
			dst[i] = src[i] // the result is the vector of the last rank, as the order is that of the ranks
		}
	})
	if err != nil {
		return err
	}
	return equal("all_reduce_func", x, func(i int) int64 { return value(c.Size()-1, i, round) })
}

func gather(ctx context.Context, c *nexar.Comm, n, round int) error {
	root := (round + 1) % c.Size()
	var dst []int64
	if c.Rank() == root {
		dst = make([]int64, c.Size()*n)
	}
	if err := nexar.Gather(ctx, c, dst, vector(c.Rank(), n, round), root); err != nil {
		return err
	}
	return equal("gather", dst, func(i int) int64 { return value(i/n, i%n, round) })
}

func allGather(ctx context.Context, c *nexar.Comm, n, round int) error {
	dst := make([]int64, c.Size()*n)
	if err := nexar.AllGather(ctx, c, dst, vector(c.Rank(), n, round)); err != nil {
		return err
	}
	return equal("all_gather", dst, func(i int) int64 { return value(i/n, i%n, round) })
}

func scatter(ctx context.Context, c *nexar.Comm, n, round int) error {
	root := (round + 2) % c.Size()
	var src []int64
	if c.Rank() == root {
		src = vector(root, c.Size()*n, round)
	}
	dst := make([]int64, n)
	if err := nexar.Scatter(ctx, c, dst, src, root); err != nil {
		return err
	}
	return equal("scatter", dst, func(i int) int64 { return value(root, c.Rank()*n+i, round) })
}

func reduceScatter(ctx context.Context, c *nexar.Comm, n, round int) error {
	dst := make([]int64, n)
	if err := nexar.ReduceScatter(ctx, c, dst, vector(c.Rank(), c.Size()*n, round), nexar.Sum); err != nil {
		return err
	}
	return equal("reduce_scatter", dst, func(i int) int64 { return sum(c.Size(), c.Rank()*n+i, round) })
}

func allToAll(ctx context.Context, c *nexar.Comm, n, round int) error {
	dst := make([]int64, c.Size()*n)
	if err := nexar.AllToAll(ctx, c, dst, vector(c.Rank(), c.Size()*n, round)); err != nil {
		return err
	}
	return equal("all_to_all", dst, func(i int) int64 { return value(i/n, c.Rank()*n+i%n, round) })
}

func scan(ctx context.Context, c *nexar.Comm, n, round int) error {
	x := vector(c.Rank(), n, round)
	if err := nexar.Scan(ctx, c, x, nexar.Sum); err != nil {
		return err
	}
	return equal("scan", x, func(i int) int64 { return sum(c.Rank()+1, i, round) })
}

func exclusiveScan(ctx context.Context, c *nexar.Comm, n, round int) error {
	x := vector(c.Rank(), n, round)
	if err := nexar.ExclusiveScan(ctx, c, x, nexar.Sum); err != nil {
		return err
	}
	return equal("exclusive_scan", x, func(i int) int64 { return sum(c.Rank(), i, round) }) // 0 on rank 0
}

// pingPong sends a vector from the first to the second rank of every pair and back. All ranks go
// through the pairs in the same order.
func pingPong(ctx context.Context, c *nexar.Comm, n, round int) error {
	for a := range c.Size() {
		for b := a + 1; b < c.Size(); b++ {
			tag := nexar.Tag(a*c.Size() + b)
			x := make([]int64, n)
			switch c.Rank() {
			case a:
				if err := nexar.Send(ctx, c, vector(a, n, round), b, tag); err != nil {
					return err
				}
				if _, err := nexar.Recv(ctx, c, x, b, tag); err != nil {
					return err
				}
			case b:
				if _, err := nexar.Recv(ctx, c, x, nexar.AnyRank, tag); err != nil {
					return err
				}
				if err := nexar.Send(ctx, c, x, a, tag); err != nil {
					return err
				}
			default:
				continue
			}
			if err := equal(fmt.Sprintf("rank %d and %d", a, b), x, func(i int) int64 { return value(a, i, round) }); err != nil {
				return err
			}
		}
	}
	return nil
}
