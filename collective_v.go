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

// GatherVAlloc is [GatherV] for ranks that know only their own block: it gathers the lengths of all src first, as
// [AllGatherOne] does, and returns them as counts on all ranks. On root it allocates dst; on other ranks dst is nil. If all src
// together have more elements than a vector may have, all ranks get the same [ErrInvalidLength], and the communicator can
// still be used.
func GatherVAlloc[T any](ctx context.Context, c *Comm, src []T, root int) (dst []T, counts []int, err error) {
	return gatherVAlloc(ctx, c, plan.Gather, src, root)
}

// AllGatherVAlloc is [AllGatherV] for ranks that know only their own block: it behaves as [GatherVAlloc] does, and
// returns dst on all ranks.
func AllGatherVAlloc[T any](ctx context.Context, c *Comm, src []T) (dst []T, counts []int, err error) {
	return gatherVAlloc(ctx, c, plan.AllGather, src, 0)
}

func gatherVAlloc[T any](ctx context.Context, c *Comm, kind plan.Collective, src []T, root int) (dst []T, counts []int, err error) {
	none := elementsOf(dst)
	t := new(task).OnBlocksV(&c.runner, kind, none, none, make([]int, c.Size()), 0, root) // checks T and root
	if t.Err != nil {
		return nil, nil, c.refuse(ctx, t)
	}
	if counts, err = AllGatherOne(ctx, c, len(src)); err != nil {
		return nil, nil, err
	}
	if _, _, err := c.runner.Starts("counts", counts, none.Of); err != nil {
		return nil, nil, opError(t.Name(), err)
	}
	if kind == plan.AllGather || root == c.Rank() {
		dst = make([]T, collective.Sum(counts))
	}
	if err := c.run(ctx, new(task).OnBlocksV(&c.runner, kind, elementsOf(dst), elementsOf(src), counts, 0, root)); err != nil {
		return nil, nil, err
	}
	return dst, counts, nil
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
// The ranks exchange their counts first, by a collective of its own. A rank that does not know its dstCounts calls [AllToAllVAlloc].
func AllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) error {
	t, err := allToAllV(ctx, c, elementsOf(dst), elementsOf(src), dstCounts, srcCounts)
	if err != nil {
		return err
	}
	return c.run(ctx, t)
}

// allToAllV exchanges the counts and returns the task. Its error has the name of the call.
func allToAllV(ctx context.Context, c *Comm, dst, src elements, dstCounts, srcCounts []int) (*task, error) {
	t := new(task).AllToAllV(&c.runner, dst, src, dstCounts, srcCounts)
	all, err := c.exchangeCounts(ctx, t, slices.Concat(dstCounts, srcCounts), dst.Of)
	if err != nil {
		return nil, err
	}
	t.SetCounts(all, c.Size(), dst.Of)
	return t, nil
}

// AllToAllVAlloc is [AllToAllV] for a rank that does not know how many elements it receives: it returns dst, which it allocates,
// and dstCounts. If a rank would receive more elements than a vector may have, all ranks get the same [ErrInvalidLength], and
// the communicator can still be used. Other ranks may call AllToAllV.
func AllToAllVAlloc[T any](ctx context.Context, c *Comm, src []T, srcCounts []int) (dst []T, dstCounts []int, err error) {
	n, of := c.Size(), elementsOf(dst)
	check := new(task).AllToAllV(&c.runner, of, elementsOf(src), make([]int, n), srcCounts)
	all, err := c.exchangeCounts(ctx, check, slices.Concat(slices.Repeat([]int{anyCount}, n), srcCounts), of.Of)
	if err != nil {
		return nil, nil, err
	}
	dstCounts = slices.Clone(all[2*c.Rank()*n:][:n])
	dst = make([]T, collective.Sum(dstCounts))
	t := new(task).AllToAllV(&c.runner, elementsOf(dst), elementsOf(src), dstCounts, srcCounts)
	t.SetCounts(all, n, of.Of)
	if err := c.run(ctx, t); err != nil {
		return nil, nil, err
	}
	return dst, dstCounts, nil
}

// anyCount is the count of a block that a rank accepts with any length.
const anyCount = -1

// exchangeCounts returns, for each rank, the counts that it expects, followed by those that it sends. own has those of this rank,
// and t the error of its parameters.
func (c *Comm) exchangeCounts(ctx context.Context, t *task, own []int, of element) (all []int, err error) {
	const name = collective.AllToAllVName
	if t.Err != nil {
		return nil, opError(name, t.Err)
	}
	all = make([]int, c.Size()*len(own))
	exchange := new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(all), elementsOf(own), 0, 0)
	exchange.Op = collective.CountsOp
	if err := c.run(ctx, exchange); err != nil {
		return nil, err
	}
	return all, opError(name, c.checkCounts(all, of))
}

// checkCounts finds a sender and a receiver with different counts, and sets those of a receiver that accepts any. The
// counts of each rank are those it expects, followed by those it sends.
func (c *Comm) checkCounts(all []int, of element) error {
	size := c.Size()
	for to := range size {
		expected, changed := all[2*to*size:][:size], false
		for from, want := range expected {
			switch sent := all[(2*from+1)*size+to]; {
			case want == anyCount:
				expected[from], changed = sent, true
			case want != sent || sent < 0: // A rank may send itself wrong counts.
				return &CountsError{From: from, To: to, Sent: sent, Expected: want}
			}
		}
		if !changed {
			continue
		}
		if _, _, err := c.runner.Starts(fmt.Sprintf("for rank %d, dstCounts", to), expected, of); err != nil {
			return err
		}
	}
	return nil
}
