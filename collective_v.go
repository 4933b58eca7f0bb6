package nexar

import (
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// The functions below are collectives with blocks of different lengths.
// counts[r] is the number of elements of block r, 0 or more; all ranks give the
// same counts, one for each rank. Calls with different counts are a [MismatchError].

// Shares returns counts for [GatherV] and its siblings that divide n elements as evenly as
// possible: n/size for each of size ranks, and one more for the first n%size. It panics if
// size is less than 1 or n is negative.
func Shares(n, size int) (counts []int) {
	if n < 0 || size < 1 {
		panic(fmt.Sprintf("nexar: Shares(%d, %d): n must not be negative, and size must be at least 1", n, size))
	}
	counts = make([]int, size)
	for r := range counts {
		counts[r] = n / size
		if r < n%size {
			counts[r]++
		}
	}
	return counts
}

// GatherV is [Gather] for blocks of different lengths: src of rank r has counts[r]
// elements, and dst of root as many as all src together.
func GatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, new(task).OnBlocksV(&c.runner, plan.Gather, elementsOf(dst), elementsOf(src), counts, 0, root))
}

// AllGatherV is [AllGather] for blocks of different lengths: src of rank r has
// counts[r] elements, and dst of every rank as many as all src together.
func AllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	return c.run(ctx, new(task).OnBlocksV(&c.runner, plan.AllGather, elementsOf(dst), elementsOf(src), counts, 0, 0))
}

// ScatterV is [Scatter] for blocks of different lengths: dst of rank r has
// counts[r] elements, and src of root as many as all together.
func ScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, new(task).OnBlocksV(&c.runner, plan.Scatter, elementsOf(dst), elementsOf(src), counts, 0, root))
}

// ReduceScatterV is [ReduceScatter] for blocks of different lengths: dst of rank r
// has counts[r] elements, and src of every rank as many as all together.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) error {
	return c.run(ctx, new(task).OnBlocksV(&c.runner, plan.ReduceScatter, numbersOf(dst), numbersOf(src), counts, kernel.Op(op), 0))
}

// AllToAllV is [AllToAll] for blocks of different lengths: this rank sends
// srcCounts[r] elements to rank r, block r of src, and receives dstCounts[r] from
// it, block r of dst. If the numbers of a sender and its receiver differ, all ranks
// get the same [CountsError], and the communicator can still be used.
//
// The ranks exchange their counts first, by a collective of its own.
func AllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) error {
	t, err := allToAllV(ctx, c, elementsOf(dst), elementsOf(src), dstCounts, srcCounts)
	if err != nil {
		return err
	}
	return c.run(ctx, t)
}

// allToAllV exchanges the counts and returns the task. Its error has the name of the call.
func allToAllV(ctx context.Context, c *Comm, dst, src elements, dstCounts, srcCounts []int) (*task, error) {
	const name = collective.AllToAllVName
	t := new(task).AllToAllV(&c.runner, dst, src, dstCounts, srcCounts)
	if t.Err != nil {
		return nil, opError(name, t.Err)
	}
	all := make([]int, 2*c.Size()*c.Size())
	exchange := new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(all), elementsOf(slices.Concat(dstCounts, srcCounts)), 0, 0)
	exchange.Op = collective.CountsOp
	if err := c.run(ctx, exchange); err != nil {
		return nil, err
	}
	if err := checkCounts(all, c.Size()); err != nil {
		return nil, opError(name, err)
	}
	t.SetCounts(all, c.Size(), dst.Of)
	return t, nil
}

// checkCounts finds a sender and a receiver with different counts. The
// counts of each rank are those it expects, followed by those it sends.
func checkCounts(all []int, size int) error {
	for to := range size {
		for from := range size {
			want, sent := all[2*to*size+from], all[(2*from+1)*size+to]
			if want != sent {
				return &CountsError{From: from, To: to, Sent: sent, Expected: want}
			}
		}
	}
	return nil
}
