package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// Barrier returns when every rank has called it. If ctx ends first, the
// communicator is revoked on all ranks.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.run(ctx, &task{Task: selector.Task{Kind: plan.Barrier, Elem: 1}}, nil)
}

// Broadcast copies data of root to data of all ranks. All have the same
// length.
func Broadcast[T any](ctx context.Context, c *Comm, data []T, root int) error {
	var t task
	return c.run(ctx, &t, broadcastTask(&t, c, elementsOf(data), root))
}

// Reduce combines data of all ranks, element by element, and leaves the result
// in data of root. On other ranks data is unchanged. All have the same length.
func Reduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) error {
	var t task
	return c.run(ctx, &t, reduceTask(&t, c, elementsOf(data), op, root))
}

// ReduceFunc is Reduce with a function of the caller, as AllReduceFunc has it.
func ReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) error {
	var t task
	return c.run(ctx, &t, reduceFuncTask(&t, c, data, combine, root))
}

// AllReduce combines data of all ranks, element by element, and leaves the
// result in data of every rank, with the same bits everywhere. All have the
// same length. After an error data holds neither.
func AllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	var t task
	return c.run(ctx, &t, allReduceTask(&t, c, elementsOf(data), op))
}

// AllReduceFunc is AllReduce with a function of the caller, which makes
// dst[i] = dst[i] ∘ src[i] for all i. ∘ is associative but need not be
// commutative: it is applied in the order of the ranks. combine is called for
// parts of the vector, by this goroutine or by others, also by several at once;
// it changes dst alone and keeps neither slice. It must not block, call this
// package or panic, as others wait for it; a call that is cancelled ends only
// when combine has returned. If combine panics, so does AllReduceFunc, and the
// communicator is revoked. If it ends its goroutine, as runtime.Goexit and FailNow
// of a test do, that counts as a panic where ranks share memory, and otherwise
// ends the process with one, as the goroutine may serve all communicators. All
// ranks use the same function.
func AllReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	var t task
	return c.run(ctx, &t, allReduceFuncTask(&t, c, data, combine))
}

// Gather collects src of all ranks in dst of root: block r of dst is src of
// rank r. All src have the same length; on root dst is Size times as long, on
// other ranks it is ignored and may be nil. On root src may be its own block of
// dst, dst[root*len(src):(root+1)*len(src)], which then stays as it is; any
// other overlap is an ErrOverlap.
func Gather[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	var t task
	return c.run(ctx, &t, gatherTask(&t, c, elementsOf(dst), elementsOf(src), root))
}

// AllGather collects src of all ranks in dst of every rank: block r of dst is
// src of rank r. All src have the same length, and dst is Size times as long.
// src may be this rank's own block of dst, dst[Rank*len(src):(Rank+1)*len(src)],
// which then stays as it is, whatever other ranks do; any other overlap is an
// ErrOverlap.
func AllGather[T any](ctx context.Context, c *Comm, dst, src []T) error {
	var t task
	return c.run(ctx, &t, allGatherTask(&t, c, elementsOf(dst), elementsOf(src)))
}

// Scatter deals src of root out: dst of rank r is block r of src. All dst have
// the same length; on root src is Size times as long, on other ranks it is
// ignored and may be nil. On root dst may be its own block of src,
// src[root*len(dst):(root+1)*len(dst)], which then stays as it is; any other
// overlap is an ErrOverlap. src is not changed.
func Scatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	var t task
	return c.run(ctx, &t, scatterTask(&t, c, elementsOf(dst), elementsOf(src), root))
}

// ReduceScatter combines src of all ranks, element by element, and leaves
// block r of the result in dst of rank r. All dst have the same length, and
// src is Size times as long. dst may be this rank's own block of src,
// src[Rank*len(dst):(Rank+1)*len(dst)], whatever other ranks do; any other
// overlap is an ErrOverlap. Save for that block src is not changed.
func ReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	var t task
	return c.run(ctx, &t, reduceScatterTask(&t, c, elementsOf(dst), elementsOf(src), op))
}

// AllToAll sends block r of src to rank r: block i of dst is block Rank of src
// of rank i. dst and src have the same length on all ranks, a multiple of
// Size. Any overlap of them is an ErrOverlap.
func AllToAll[T any](ctx context.Context, c *Comm, dst, src []T) error {
	var t task
	return c.run(ctx, &t, allToAllTask(&t, c, elementsOf(dst), elementsOf(src)))
}

// Scan combines data of the ranks 0 to Rank, element by element and in this
// order, and leaves the result in data: the inclusive prefix. All have the
// same length.
func Scan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	var t task
	return c.run(ctx, &t, scanTask(&t, c, elementsOf(data), op))
}

// ExclusiveScan combines data of the ranks before this one, element by element
// and in their order, and leaves the result in data. On rank 0 data is
// unchanged. All have the same length.
func ExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	var t task
	return c.run(ctx, &t, exclusiveScanTask(&t, c, elementsOf(data), op))
}

// What follows checks the parameters of the calls above.

func broadcastTask(t *task, c *Comm, data elements, root int) error {
	err := t.vector(plan.Broadcast, data)
	t.Root, t.reads = root, c.impl.Rank == root
	if err == nil {
		err = c.checkRoot(root)
	}
	return err
}

func reduceTask(t *task, c *Comm, data elements, op Op, root int) error {
	err := t.vector(plan.Reduction, data)
	t.Root, t.reads = root, c.impl.Rank != root
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil {
		err = t.setOp(op, c.Size())
	}
	if c.impl.Rank != root {
		t.ranks = 0
	}
	return err
}

func reduceFuncTask[T Number](t *task, c *Comm, data []T, combine func(dst, src []T), root int) error {
	err := t.vector(plan.Reduction, elementsOf(data))
	t.Root, t.reads = root, c.impl.Rank != root
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil {
		err = setFunc(t, c, "reduce_func", combine)
	}
	return err
}

func allReduceTask(t *task, c *Comm, data elements, op Op) error {
	err := t.vector(plan.AllReduce, data)
	if err == nil {
		err = t.setOp(op, c.Size())
	}
	return err
}

func allReduceFuncTask[T Number](t *task, c *Comm, data []T, combine func(dst, src []T)) error {
	err := t.vector(plan.AllReduce, elementsOf(data))
	if err == nil {
		err = setFunc(t, c, "all_reduce_func", combine)
	}
	return err
}

func gatherTask(t *task, c *Comm, dst, src elements, root int) error {
	if c.impl.Rank != root {
		dst.at, dst.n = nil, 0
	}
	err := t.blocks(plan.Gather, dst, src, src.n)
	t.Root, t.inFirst = root, c.impl.Rank
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil && c.impl.Rank == root {
		err = checkLength("dst", dst.n, c.Size()*src.n)
	}
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, root*t.Count, root)
	}
	return err
}

func allGatherTask(t *task, c *Comm, dst, src elements) error {
	err := t.blocks(plan.AllGather, dst, src, src.n)
	t.inFirst = c.impl.Rank
	if err == nil {
		err = checkLength("dst", dst.n, c.Size()*src.n)
	}
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, c.impl.Rank*t.Count, c.impl.Rank)
	}
	return err
}

func scatterTask(t *task, c *Comm, dst, src elements, root int) error {
	if c.impl.Rank != root {
		src.at, src.n = nil, 0
	}
	err := t.blocks(plan.Scatter, dst, src, dst.n)
	t.Root, t.first = root, c.impl.Rank
	if err == nil {
		err = c.checkRoot(root)
	}
	if err == nil && c.impl.Rank == root {
		err = checkLength("src", src.n, c.Size()*dst.n)
	}
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, root*t.Count, root)
	}
	return err
}

func reduceScatterTask(t *task, c *Comm, dst, src elements, op Op) error {
	err := t.blocks(plan.ReduceScatter, dst, src, dst.n)
	t.first = c.impl.Rank
	if err == nil {
		err = checkLength("src", src.n, c.Size()*dst.n)
	}
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, c.impl.Rank*t.Count, c.impl.Rank)
	}
	if err == nil {
		err = t.setOp(op, c.Size())
	}
	return err
}

func allToAllTask(t *task, c *Comm, dst, src elements) error {
	err := t.blocks(plan.AllToAll, dst, src, src.n/c.Size())
	if err == nil {
		err = checkLength("dst", dst.n, src.n)
	}
	if err == nil && src.n%c.Size() != 0 {
		err = fmt.Errorf("%w: src has %d elements, which is no multiple of %d ranks", ErrInvalidLength, src.n, c.Size())
	}
	if err == nil && overlap.Two(t.data, t.input) {
		err = fmt.Errorf("%w: dst and src share memory", ErrOverlap)
	}
	return err
}

func scanTask(t *task, c *Comm, data elements, op Op) error {
	err := t.vector(plan.Scan, data)
	t.Ordered = true
	if err == nil {
		err = t.setOp(op, c.impl.Rank+1)
	}
	return err
}

func exclusiveScanTask(t *task, c *Comm, data elements, op Op) error {
	err := t.vector(plan.ExclusiveScan, data)
	t.Ordered = true
	if err == nil {
		err = t.setOp(op, c.impl.Rank)
	}
	return err
}
