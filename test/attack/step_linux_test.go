package attack

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
)

// value returns element i of the vector of a rank in a round.
func value(rank, i, round int) int64 { return int64(rank+1)*1_000_003 + int64(i)*17 + int64(round) }

// total returns element i of the sum over all n ranks.
func total(n, i, round int) int64 {
	return int64(n*(n+1)/2)*1_000_003 + int64(n)*(int64(i)*17+int64(round))
}

func fill(x []int64, rank, round int) []int64 {
	for i := range x {
		x[i] = value(rank, i, round)
	}
	return x
}

// compare checks every element of a result.
func compare(what string, got []int64, want func(i int) int64) error {
	for i, x := range got {
		if x != want(i) {
			return fmt.Errorf("%w: %s: element %d of %d is %d, want %d", errWrong, what, i, len(got), x, want(i))
		}
	}
	return nil
}

// step makes an all-reduce and another operation, and verifies every element. The last element of the
// all-reduce is positive if a rank wants to stop.
func (r *rank) step(ctx context.Context, c *nexar.Comm) (stop bool, err error) {
	round := int(r.state.Step)
	n := []int{1, 1000, 30_000}[round%3] + r.args.Vector
	x := append(fill(make([]int64, n), c.Rank(), round), 0)
	if r.stop.Load() {
		x[n] = 1
	}
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
		return false, err
	}
	err = compare("all-reduce", x[:n], func(i int) int64 { return total(c.Size(), i, round) })
	if err == nil {
		err = laterOperations()[round%len(laterOperations())](ctx, c, 100+n/4, round)
	}
	if err != nil {
		return false, fmt.Errorf("rank %d of %d in epoch %d, step %d: %w", c.Rank(), c.Size(), c.Epoch(), round, err)
	}
	r.state.add((x[0] - total(c.Size(), 0, 0)) / int64(c.Size()))
	return x[n] > 0, nil
}

// laterOperations returns the operations that take turns after the all-reduce of a step.
func laterOperations() []func(ctx context.Context, c *nexar.Comm, n, round int) error {
	return []func(ctx context.Context, c *nexar.Comm, n, round int) error{allGather, broadcast, ring, reduceScatter}
}

func allGather(ctx context.Context, c *nexar.Comm, n, round int) error {
	all := make([]int64, n*c.Size())
	if err := nexar.AllGather(ctx, c, all, fill(make([]int64, n), c.Rank(), round)); err != nil {
		return err
	}
	return compare("all-gather", all, func(i int) int64 { return value(i/n, i%n, round) })
}

func broadcast(ctx context.Context, c *nexar.Comm, n, round int) error {
	root := round % c.Size()
	x := fill(make([]int64, n), c.Rank(), round)
	if err := nexar.Broadcast(ctx, c, x, root); err != nil {
		return err
	}
	return compare("broadcast", x, func(i int) int64 { return value(root, i, round) })
}

func reduceScatter(ctx context.Context, c *nexar.Comm, n, round int) error {
	got := make([]int64, n)
	if err := nexar.ReduceScatter(ctx, c, got, fill(make([]int64, n*c.Size()), c.Rank(), round), nexar.Sum); err != nil {
		return err
	}
	return compare("reduce-scatter", got, func(i int) int64 { return total(c.Size(), c.Rank()*n+i, round) })
}

// ring sends a vector to the next rank and receives the vector of the previous rank.
func ring(ctx context.Context, c *nexar.Comm, n, round int) error {
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	sent := make(chan error, 1)
	go func() { sent <- nexar.Send(ctx, c, fill(make([]int64, n), c.Rank(), round), next, 5) }()
	x := make([]int64, n)
	_, err := nexar.Recv(ctx, c, x, prev, 5)
	if sending := <-sent; err == nil {
		err = sending
	}
	if err != nil {
		return err
	}
	return compare("ring", x, func(i int) int64 { return value(prev, i, round) })
}
