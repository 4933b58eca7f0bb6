package nexar

import (
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// The functions below are collectives with blocks of different lengths.
// counts[r] is the number of elements of block r, 0 or more; all ranks give the
// same counts, one for each rank. Calls with different counts are a MismatchError.

// Shares returns counts for [GatherV] and its siblings that divide n elements as evenly as
// possible: n/size for each of size ranks, and one more for the first n%size. It panics if
// size is less than 1 or n is negative.
func Shares(n, size int) (counts []int) {
	if n < 0 || size < 1 {
		panic(fmt.Sprintf("nexar: shares of %d elements for %d ranks", n, size))
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

// GatherV is Gather for blocks of different lengths: src of rank r has counts[r]
// elements, and dst of root as many as all src together.
func GatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, new(task).gatherV(c, elementsOf(dst), elementsOf(src), counts, root))
}

// AllGatherV is AllGather for blocks of different lengths: src of rank r has
// counts[r] elements, and dst of every rank as many as all src together.
func AllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	return c.run(ctx, new(task).allGatherV(c, elementsOf(dst), elementsOf(src), counts))
}

// ScatterV is Scatter for blocks of different lengths: dst of rank r has
// counts[r] elements, and src of root as many as all together.
func ScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	return c.run(ctx, new(task).scatterV(c, elementsOf(dst), elementsOf(src), counts, root))
}

// ReduceScatterV is ReduceScatter for blocks of different lengths: dst of rank r
// has counts[r] elements, and src of every rank as many as all together.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) error {
	return c.run(ctx, new(task).reduceScatterV(c, numbersOf(dst), numbersOf(src), counts, op))
}

// AllToAllV is AllToAll for blocks of different lengths: this rank sends
// srcCounts[r] elements to rank r, block r of src, and receives dstCounts[r] from
// it, block r of dst. If the numbers of a sender and its receiver differ, all ranks
// get the same CountsError, and the communicator can still be used.
//
// The ranks exchange their counts first, by a collective of its own.
func AllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) error {
	t, err := allToAllV(ctx, c, elementsOf(dst), elementsOf(src), dstCounts, srcCounts)
	if err != nil {
		return err
	}
	return c.run(ctx, t)
}

// elementsMax limits the elements of all blocks of a call together.
const elementsMax = 1 << 39

// blocksV is for a task with a block of counts[r] elements for each rank r.
func (t *task) blocksV(c *Comm, kind plan.Collective, dst, src elements, counts []int) *task {
	t.label = kind.String() + "_v"
	if t.blocks(kind, dst, src, 0); t.err != nil {
		return t
	}
	starts, longest, err := c.starts("counts", counts, dst.of)
	t.Uneven, t.Digest = &exec.Uneven{Starts: starts, Longest: longest}, engine.Digest(starts)
	if err == nil {
		t.Total = starts[c.Size()]
	}
	return t.require(err)
}

// starts returns where the blocks of counts begin, as tasks count elements.
func (c *Comm) starts(name string, counts []int, of element) (starts []int, longest int, err error) {
	each, _ := of.counted(1)
	if len(counts) != c.Size() {
		return nil, 0, fmt.Errorf("%w: %d %s for %d ranks", ErrInvalidLength, len(counts), name, c.Size())
	}
	starts = make([]int, 1, len(counts)+1)
	for r, n := range counts {
		if n < 0 || n > (elementsMax-1-starts[r])/each {
			return nil, 0, fmt.Errorf("%w: %s[%d] is %d", ErrInvalidLength, name, r, n)
		}
		starts = append(starts, starts[r]+n*each)
		longest = max(longest, n*each)
	}
	return starts, longest, nil
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (t *task) gatherV(c *Comm, dst, src elements, counts []int, root int) *task {
	rank := c.impl.Rank
	if rank != root {
		dst.at, dst.n = nil, 0
	}
	t.blocksV(c, plan.Gather, dst, src, counts)
	t.Root, t.InputFirst = root, rank
	if t.require(c.checkRoot(root)); t.err != nil {
		return t
	}
	t.require(checkLength("src", src.n, counts[rank]))
	if rank == root {
		t.require(checkLength("dst", dst.n, sum(counts)))
	}
	return t.setInPlace("dst", "src", t.Data, t.Input, t.Uneven.Starts[root], root)
}

func (t *task) allGatherV(c *Comm, dst, src elements, counts []int) *task {
	rank := c.impl.Rank
	t.InputFirst = rank
	if t.blocksV(c, plan.AllGather, dst, src, counts); t.err != nil {
		return t
	}
	t.require(checkLength("src", src.n, counts[rank])).require(checkLength("dst", dst.n, sum(counts)))
	return t.setInPlace("dst", "src", t.Data, t.Input, t.Uneven.Starts[rank], rank)
}

func (t *task) scatterV(c *Comm, dst, src elements, counts []int, root int) *task {
	rank := c.impl.Rank
	if rank != root {
		src.at, src.n = nil, 0
	}
	t.blocksV(c, plan.Scatter, dst, src, counts)
	t.Root, t.DataFirst = root, rank
	if t.require(c.checkRoot(root)); t.err != nil {
		return t
	}
	t.require(checkLength("dst", dst.n, counts[rank]))
	if rank == root {
		t.require(checkLength("src", src.n, sum(counts)))
	}
	return t.setInPlace("src", "dst", t.Input, t.Data, t.Uneven.Starts[root], root)
}

func (t *task) reduceScatterV(c *Comm, dst, src elements, counts []int, op Op) *task {
	rank := c.impl.Rank
	t.DataFirst = rank
	if t.blocksV(c, plan.ReduceScatter, dst, src, counts); t.err != nil {
		return t
	}
	t.require(checkLength("dst", dst.n, counts[rank])).require(checkLength("src", src.n, sum(counts)))
	return t.setInPlace("src", "dst", t.Input, t.Data, t.Uneven.Starts[rank], rank).setOp(op, c.Size())
}

// allToAllVName is the name of AllToAllV in errors.
const allToAllVName = "all_to_all_v"

// allToAllV exchanges the counts and returns the task. Its error has the name of
// the call.
func allToAllV(ctx context.Context, c *Comm, dst, src elements, dstCounts, srcCounts []int) (*task, error) {
	t := new(task).blocks(plan.AllToAll, dst, src, 0)
	t.label = allToAllVName
	in, out, err := []int(nil), []int(nil), t.err
	if err == nil {
		in, _, err = c.starts("dstCounts", dstCounts, dst.of)
	}
	if err == nil {
		out, _, err = c.starts("srcCounts", srcCounts, src.of)
	}
	t.require(err)
	t.require(checkLength("dst", dst.n, sum(dstCounts))).require(checkLength("src", src.n, sum(srcCounts))).setApart()
	if t.err != nil {
		return nil, opError(allToAllVName, t.err)
	}
	all := make([]int, 2*c.Size()*c.Size())
	exchange := new(task).allGather(c, elementsOf(all), elementsOf(slices.Concat(dstCounts, srcCounts)))
	exchange.label, exchange.Op = allToAllVName, countsOp
	if err := c.run(ctx, exchange); err != nil {
		return nil, err
	}
	if err := checkCounts(all, c.Size()); err != nil {
		return nil, opError(allToAllVName, err)
	}
	each, _ := dst.of.counted(1)
	t.Uneven, t.Digest = &exec.Uneven{Starts: in, Inputs: out, Longest: slices.Max(all) * each}, engine.Digest(all)
	for r := range c.Size() {
		t.Total += sum(all[2*r*c.Size():][:c.Size()]) * each
	}
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
