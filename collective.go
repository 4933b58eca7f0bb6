package nexar

import (
	"cmp"
	"context"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// Barrier returns when every rank has called it. If ctx ends first, the
// communicator is revoked on all ranks.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.Barrier, elements{Of: element{Size: 1}}, 0, 0))
}

// Broadcast copies data of root to data of all ranks. All have the same length. Root only reads its data.
func Broadcast[T any](ctx context.Context, c *Comm, data []T, root int) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.Broadcast, elementsOf(data), 0, root))
}

// Reduce combines data of all ranks, element by element, and stores the result
// in data of root. Other ranks only read their data. All have the same length.
func Reduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.Reduction, numbersOf(data), kernel.Op(op), root))
}

// ReduceFunc is [Reduce] with a function of the caller, as in [AllReduceFunc].
func ReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) error {
	return c.run(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.Reduction, elementsOf(data), combine, root))
}

// AllReduce combines data of all ranks, element by element, and stores the
// result in data of every rank, with the same bits everywhere. All have the same
// length. After an error the content of data is undefined.
func AllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.AllReduce, numbersOf(data), kernel.Op(op), 0))
}

// AllReduceFunc is [AllReduce] with a function of the caller, which sets
// dst[i] = dst[i] ∘ src[i] for all i. ∘ is associative but need not be commutative: it is
// applied in the order of the ranks. All ranks use the same function.
//
// T is a number or any type without pointers, such as a struct. All ranks must have the
// same layout of it: the kinds, offsets and sizes of its fields. Padding is set to zero.
//
// combine is called for parts of the vector, by this goroutine or by others, also by
// several at once. It changes dst alone and keeps neither slice. It must not block, call
// this package or panic, as other ranks wait for it. A cancelled call returns only when
// combine has returned. If combine panics, so does AllReduceFunc, and the communicator is
// revoked. If combine ends its goroutine, as [runtime.Goexit] and testing.T.FailNow do, that
// counts as a panic where ranks share memory; elsewhere it ends the process with a panic,
// as the goroutine may serve all communicators.
func AllReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	return c.run(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.AllReduce, elementsOf(data), combine, 0))
}

// Gather collects src of all ranks in dst of root: block r of dst is src of
// rank r. All src have the same length. On root dst is Size times as long; on
// other ranks it is ignored and may be nil. On root src may be the block of root in
// dst, dst[root*len(src):(root+1)*len(src)], which is then not copied; any
// other overlap is an [ErrOverlap].
func Gather[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, new(task).OnBlocks(&c.runner, plan.Gather, elementsOf(dst), elementsOf(src), 0, root))
}

// AllGather collects src of all ranks in dst of every rank: block r of dst is
// src of rank r. All src have the same length, and dst is Size times as long.
// src may be this rank's own block of dst, dst[Rank*len(src):(Rank+1)*len(src)],
// which is then not copied. Each rank may choose this for itself. Any other overlap
// is an [ErrOverlap].
func AllGather[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(dst), elementsOf(src), 0, 0))
}

// Scatter distributes src of root: dst of rank r is block r of src. All dst have
// the same length. On root src is Size times as long; on other ranks it is
// ignored and may be nil. On root dst may be the block of root in src,
// src[root*len(dst):(root+1)*len(dst)], which is then not copied; any other
// overlap is an [ErrOverlap]. src is not changed.
func Scatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, new(task).OnBlocks(&c.runner, plan.Scatter, elementsOf(dst), elementsOf(src), 0, root))
}

// ReduceScatter combines src of all ranks, element by element, and stores block r
// of the result in dst of rank r. All dst have the same length, and src is Size
// times as long. dst may be this rank's own block of src,
// src[Rank*len(dst):(Rank+1)*len(dst)]; each rank may choose this for itself. Any other
// overlap is an [ErrOverlap]. Except for that block src is not changed.
func ReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	return c.run(ctx, new(task).OnBlocks(&c.runner, plan.ReduceScatter, numbersOf(dst), numbersOf(src), kernel.Op(op), 0))
}

// AllToAll sends block r of src to rank r: block i of dst is block Rank of src
// of rank i. dst and src have the same length on all ranks, a multiple of Size.
// Any overlap of them is an [ErrOverlap].
func AllToAll[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, new(task).OnBlocks(&c.runner, plan.AllToAll, elementsOf(dst), elementsOf(src), 0, 0))
}

// Scan combines data of the ranks 0 to Rank, element by element and in this
// order, and stores the result in data: the inclusive prefix. All have the same
// length.
func Scan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.Scan, numbersOf(data), kernel.Op(op), 0))
}

// ExclusiveScan combines data of the ranks before this one, element by element
// and in their order, and stores the result in data. There are none before rank 0, which gets the
// identity of op: 0 for [Sum], [Avg], [BitOr] and [BitXor], 1 for [Prod], all bits for [BitAnd], the highest
// value of T or +Inf for [Min], and the lowest or -Inf for [Max]. All have the same length.
func ExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).OnVector(&c.runner, plan.ExclusiveScan, numbersOf(data), kernel.Op(op), 0))
}

// ScanFunc is [Scan] with a function of the caller, as in [AllReduceFunc].
func ScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	return c.run(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.Scan, elementsOf(data), combine, 0))
}

// ExclusiveScanFunc is [ExclusiveScan] with a function of the caller, as in
// [AllReduceFunc]. The identity of a function is not known: on rank 0 data is unchanged.
func ExclusiveScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	return c.run(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.ExclusiveScan, elementsOf(data), combine, 0))
}

// MinLoc stores in data of every rank the smallest of all ranks' elements, for
// each index, and in ranks the rank that has it: the lowest, if several do. A NaN
// counts as smaller than all numbers. All data have the same length, and ranks
// the same as data; the previous content of ranks does not matter. The result has
// the same bits on all ranks.
func MinLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	return c.run(ctx, collective.Locate(new(task), &c.runner, false, data, numbersOf(data), ranks))
}

// MaxLoc is [MinLoc] for the largest element. A NaN counts as larger than all
// numbers.
func MaxLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	return c.run(ctx, collective.Locate(new(task), &c.runner, true, data, numbersOf(data), ranks))
}

// startLocate starts a MinLoc or MaxLoc. The task reduces a copy of data, so data and ranks
// are registered as being in use.
func startLocate[T Real](ctx context.Context, c *Comm, most bool, data []T, ranks []int32) *Handle {
	t := collective.Locate(new(task), &c.runner, most, data, numbersOf(data), ranks)
	release, busy := c.hold(t.Name(), bytesOf(data), bytesOf(ranks))
	t.Err = cmp.Or(t.Err, busy)
	h := c.start(ctx, t)
	return c.follow(func(*Handle) error {
		defer release()
		return h.Wait()
	})
}

// run carries a task out, unless its parameters are wrong.
func (c *Comm) run(ctx context.Context, t *task) error {
	if t.Err != nil || ctx.Err() != nil {
		return c.refuse(ctx, t)
	}
	if c.labels.On() {
		defer c.labels.Begin(ctx, t.Name())()
	}
	op, err := c.runner.Begin(t)
	if err == nil {
		err = t.End(ctx, op)
	}
	if err != nil {
		err = c.explain(ctx, t.Name(), err)
	}
	if t.Guard != nil {
		t.Guard.Check()
	}
	return err
}

// begin gives a task its sequence number and starts it.
func (c *Comm) begin(ctx context.Context, t *task) (*engine.Op, error) {
	if t.Err != nil || ctx.Err() != nil {
		return nil, c.refuse(ctx, t)
	}
	op, err := c.runner.Begin(t)
	if err != nil {
		return nil, c.explain(ctx, t.Name(), err)
	}
	return op, nil
}

// refuse returns the error of a task with wrong parameters, or with a context that has ended.
func (c *Comm) refuse(ctx context.Context, t *task) error {
	if t.Err != nil {
		return opError(t.Name(), t.Err)
	}
	err := c.over(ctx)
	c.comm.Cancel(context.Cause(ctx)) // The other ranks wait for this one.
	return opError(t.Name(), err)
}

// end waits for the end of a task that begin has started.
func (c *Comm) end(ctx context.Context, t *task, op *engine.Op) error {
	err := t.End(ctx, op)
	if err != nil {
		return c.explain(ctx, t.Name(), err)
	}
	return nil
}
