package nexar

import (
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
)

// The functions below are collectives whose blocks are of different lengths.
// counts[r] is the number of elements of block r, 0 or more; all ranks give the
// same counts, one for each of them. A call in which they differ is a
// MismatchError.

// GatherV is Gather for blocks of different lengths: src of rank r has counts[r]
// elements, and dst of root as many as all together.
func GatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	var t task
	return c.run(ctx, &t, gatherVTask(&t, c, dst, src, counts, root))
}

// StartGatherV begins a GatherV; see Handle. counts may be used again at once.
func StartGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	var t task
	return c.start(ctx, &t, gatherVTask(&t, c, dst, src, counts, root))
}

// AllGatherV is AllGather for blocks of different lengths: src of rank r has
// counts[r] elements, and dst of every rank as many as all together.
func AllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) error {
	var t task
	return c.run(ctx, &t, allGatherVTask(&t, c, dst, src, counts))
}

// StartAllGatherV begins an AllGatherV; see Handle. counts may be used again at
// once.
func StartAllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) *Handle {
	var t task
	return c.start(ctx, &t, allGatherVTask(&t, c, dst, src, counts))
}

// ScatterV is Scatter for blocks of different lengths: dst of rank r has
// counts[r] elements, and src of root as many as all together.
func ScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) error {
	var t task
	return c.run(ctx, &t, scatterVTask(&t, c, dst, src, counts, root))
}

// StartScatterV begins a ScatterV; see Handle. counts may be used again at once.
func StartScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	var t task
	return c.start(ctx, &t, scatterVTask(&t, c, dst, src, counts, root))
}

// ReduceScatterV is ReduceScatter for blocks of different lengths: dst of rank r
// has counts[r] elements, and src of every rank as many as all together.
func ReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) error {
	var t task
	return c.run(ctx, &t, reduceScatterVTask(&t, c, dst, src, counts, op))
}

// StartReduceScatterV begins a ReduceScatterV; see Handle. counts may be used
// again at once.
func StartReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) *Handle {
	var t task
	return c.start(ctx, &t, reduceScatterVTask(&t, c, dst, src, counts, op))
}

// AllToAllV is AllToAll for blocks of different lengths: this rank sends
// srcCounts[r] elements to rank r, block r of src, and gets dstCounts[r] from it,
// block r of dst. What a rank sends has to be what the other one expects; if it
// is not, all ranks get the same CountsError, and the communicator goes on.
//
// The counts of all ranks are exchanged first, by a collective of its own.
func AllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) error {
	var t task
	if err := allToAllVTask(ctx, &t, c, dst, src, dstCounts, srcCounts); err != nil {
		return err
	}
	return c.run(ctx, &t, nil)
}

// StartAllToAllV begins an AllToAllV; see Handle. It returns when all ranks have
// called it and have the counts of each other.
func StartAllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) *Handle {
	var t task
	if err := allToAllVTask(ctx, &t, c, dst, src, dstCounts, srcCounts); err != nil {
		return ended(err)
	}
	return c.start(ctx, &t, nil)
}

// elementsMax is how many elements the blocks of a call may have together.
const elementsMax = 1 << 39

// unevenBlocks is a task with a block of counts[r] elements for each rank r.
func unevenBlocks[T any](t *task, c *Comm, kind plan.Collective, dst, src []T, counts []int) error {
	err := t.blocks(kind, elementsOf(dst), elementsOf(src), 0)
	t.label = kind.String() + "_v"
	if err != nil {
		return err
	}
	starts, longest, err := c.starts("counts", counts, eachOf[T]())
	t.Uneven, t.Digest = &engine.Uneven{Starts: starts, Longest: longest}, engine.Digest(starts)
	if err == nil {
		t.Total = starts[c.Size()]
	}
	return err
}

// eachOf is what an element counts for in a task.
func eachOf[T any]() int {
	of, _ := elementOf[T]()
	n, _ := of.counted(1)
	return n
}

// starts are where the blocks of counts begin, if each element counts for so
// much.
func (c *Comm) starts(name string, counts []int, each int) (starts []int, longest int, err error) {
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

func gatherVTask[T any](t *task, c *Comm, dst, src []T, counts []int, root int) error {
	if c.impl.Rank != root {
		dst = nil
	}
	err := unevenBlocks(t, c, plan.Gather, dst, src, counts)
	t.Root, t.inFirst = root, c.impl.Rank
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil {
		err = checkLength("src", len(src), counts[c.impl.Rank])
	}
	if err == nil && c.impl.Rank == root {
		err = checkLength("dst", len(dst), sum(counts))
	}
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, t.Uneven.Starts[root], root)
	}
	return err
}

func allGatherVTask[T any](t *task, c *Comm, dst, src []T, counts []int) error {
	err := unevenBlocks(t, c, plan.AllGather, dst, src, counts)
	t.inFirst = c.impl.Rank
	if err == nil {
		err = checkLength("src", len(src), counts[c.impl.Rank])
	}
	if err == nil {
		err = checkLength("dst", len(dst), sum(counts))
	}
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, t.Uneven.Starts[c.impl.Rank], c.impl.Rank)
	}
	return err
}

func scatterVTask[T any](t *task, c *Comm, dst, src []T, counts []int, root int) error {
	if c.impl.Rank != root {
		src = nil
	}
	err := unevenBlocks(t, c, plan.Scatter, dst, src, counts)
	t.Root, t.first = root, c.impl.Rank
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil {
		err = checkLength("dst", len(dst), counts[c.impl.Rank])
	}
	if err == nil && c.impl.Rank == root {
		err = checkLength("src", len(src), sum(counts))
	}
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, t.Uneven.Starts[root], root)
	}
	return err
}

func reduceScatterVTask[T Number](t *task, c *Comm, dst, src []T, counts []int, op Op) error {
	err := unevenBlocks(t, c, plan.ReduceScatter, dst, src, counts)
	t.first = c.impl.Rank
	if err == nil {
		err = checkLength("dst", len(dst), counts[c.impl.Rank])
	}
	if err == nil {
		err = checkLength("src", len(src), sum(counts))
	}
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, t.Uneven.Starts[c.impl.Rank], c.impl.Rank)
	}
	if err == nil {
		err = t.setOp(op, c.Size())
	}
	return err
}

// allToAllVName is the name of AllToAllV in errors.
const allToAllVName = "all_to_all_v"

// allToAllVTask exchanges the counts. Its error has the name of the call.
func allToAllVTask[T any](ctx context.Context, t *task, c *Comm, dst, src []T, dstCounts, srcCounts []int) error {
	const name = allToAllVName
	err := t.blocks(plan.AllToAll, elementsOf(dst), elementsOf(src), 0)
	t.label = name
	var in, out []int
	if err == nil {
		in, _, err = c.starts("dstCounts", dstCounts, eachOf[T]())
	}
	if err == nil {
		out, _, err = c.starts("srcCounts", srcCounts, eachOf[T]())
	}
	if err == nil {
		err = checkLength("dst", len(dst), sum(dstCounts))
	}
	if err == nil {
		err = checkLength("src", len(src), sum(srcCounts))
	}
	if err == nil && overlap.Two(t.data, t.input) {
		err = fmt.Errorf("%w: dst and src share memory", ErrOverlap)
	}
	if err != nil {
		return opError(name, err)
	}
	all := make([]int, 2*c.Size()*c.Size())
	var exchange task
	err = allGatherTask(&exchange, c, elementsOf(all), elementsOf(slices.Concat(dstCounts, srcCounts)))
	exchange.label, exchange.Op = name, countsOp
	if err := c.run(ctx, &exchange, err); err != nil {
		return err
	}
	if err := checkCounts(all, c.Size()); err != nil {
		return opError(name, err)
	}
	t.Uneven, t.Digest = &engine.Uneven{Starts: in, Inputs: out, Longest: slices.Max(all) * eachOf[T]()}, engine.Digest(all)
	for r := range c.Size() {
		t.Total += sum(all[2*r*c.Size():][:c.Size()]) * eachOf[T]()
	}
	return nil
}

// checkCounts finds a pair of ranks of which one sends other than the other
// expects. The counts of each rank are those it expects, and those it sends.
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
