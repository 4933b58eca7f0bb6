package nexar

import (
	"cmp"
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// Barrier returns when every rank has called it. If ctx ends first, the
// communicator is revoked on all ranks.
func (c *Comm) Barrier(ctx context.Context) error { return c.run(ctx, new(task).barrier()) }

// Broadcast copies data of root to data of all ranks. All have the same length.
func Broadcast[T any](ctx context.Context, c *Comm, data []T, root int) error {
	return c.run(ctx, new(task).broadcast(c, elementsOf(data), root))
}

// Reduce combines data of all ranks, element by element, and stores the result
// in data of root. On other ranks data is unchanged. All have the same length.
func Reduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) error {
	return c.run(ctx, new(task).reduction(c, numbersOf(data), op, root))
}

// ReduceFunc is Reduce with a function of the caller, as in AllReduceFunc.
func ReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) error {
	return c.run(ctx, reduceFunc(new(task), c, data, combine, root))
}

// AllReduce combines data of all ranks, element by element, and stores the
// result in data of every rank, with the same bits everywhere. All have the same
// length. After an error the content of data is undefined.
func AllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).allReduce(c, numbersOf(data), op))
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
	return c.run(ctx, allReduceFunc(new(task), c, data, combine))
}

// Gather collects src of all ranks in dst of root: block r of dst is src of
// rank r. All src have the same length. On root dst is Size times as long; on
// other ranks it is ignored and may be nil. On root src may be its own block of
// dst, dst[root*len(src):(root+1)*len(src)], which then stays as it is; any
// other overlap is an ErrOverlap.
func Gather[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, new(task).gather(c, elementsOf(dst), elementsOf(src), root))
}

// AllGather collects src of all ranks in dst of every rank: block r of dst is
// src of rank r. All src have the same length, and dst is Size times as long.
// src may be this rank's own block of dst, dst[Rank*len(src):(Rank+1)*len(src)],
// which then stays as it is, independently of other ranks; any other overlap is
// an ErrOverlap.
func AllGather[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, new(task).allGather(c, elementsOf(dst), elementsOf(src)))
}

// Scatter distributes src of root: dst of rank r is block r of src. All dst have
// the same length. On root src is Size times as long; on other ranks it is
// ignored and may be nil. On root dst may be its own block of src,
// src[root*len(dst):(root+1)*len(dst)], which then stays as it is; any other
// overlap is an ErrOverlap. src is not changed.
func Scatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) error {
	return c.run(ctx, new(task).scatter(c, elementsOf(dst), elementsOf(src), root))
}

// ReduceScatter combines src of all ranks, element by element, and stores block r
// of the result in dst of rank r. All dst have the same length, and src is Size
// times as long. dst may be this rank's own block of src,
// src[Rank*len(dst):(Rank+1)*len(dst)], independently of other ranks; any other
// overlap is an ErrOverlap. Except for that block src is not changed.
func ReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	return c.run(ctx, new(task).reduceScatter(c, numbersOf(dst), numbersOf(src), op))
}

// AllToAll sends block r of src to rank r: block i of dst is block Rank of src
// of rank i. dst and src have the same length on all ranks, a multiple of Size.
// Any overlap of them is an ErrOverlap.
func AllToAll[T any](ctx context.Context, c *Comm, dst, src []T) error {
	return c.run(ctx, new(task).allToAll(c, elementsOf(dst), elementsOf(src)))
}

// Scan combines data of the ranks 0 to Rank, element by element and in this
// order, and stores the result in data: the inclusive prefix. All have the same
// length.
func Scan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).scan(c, numbersOf(data), op))
}

// ExclusiveScan combines data of the ranks before this one, element by element
// and in their order, and stores the result in data. On rank 0 data is
// unchanged. All have the same length.
func ExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return c.run(ctx, new(task).exclusiveScan(c, numbersOf(data), op))
}

// ScanFunc is [Scan] with a function of the caller, as in [AllReduceFunc].
func ScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	return c.run(ctx, scanFunc(new(task), c, data, combine))
}

// ExclusiveScanFunc is [ExclusiveScan] with a function of the caller, as in
// [AllReduceFunc].
func ExclusiveScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	return c.run(ctx, exclusiveScanFunc(new(task), c, data, combine))
}

// MinLoc stores in data of every rank the smallest of all ranks' elements, for
// each index, and in ranks the rank that has it: the lowest, if several do. A NaN
// counts as smaller than all numbers. All data have the same length, and ranks
// the same as data; the previous content of ranks does not matter. The result has
// the same bits on all ranks.
func MinLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	return c.run(ctx, minMaxLoc(new(task), c, Min, data, ranks))
}

// MaxLoc is MinLoc for the largest element. A NaN counts as larger than all
// numbers.
func MaxLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	return c.run(ctx, minMaxLoc(new(task), c, Max, data, ranks))
}

// The methods and functions below fill in the task of a call.

func (t *task) barrier() *task {
	t.Kind, t.Elem = plan.Barrier, 1
	return t
}

func (t *task) broadcast(c *Comm, data elements, root int) *task {
	t.vector(plan.Broadcast, data)
	t.Root, t.reads = root, c.impl.Rank == root
	return t.require(c.checkRoot(root))
}

func (t *task) reduction(c *Comm, data elements, op Op, root int) *task {
	t.vector(plan.Reduction, data)
	t.Root, t.reads = root, c.impl.Rank != root
	t.require(c.checkRoot(root)).setOp(op, c.Size())
	if c.impl.Rank != root {
		t.ranks = 0
	}
	return t
}

func reduceFunc[T any](t *task, c *Comm, data []T, combine func(dst, src []T), root int) *task {
	t.vector(plan.Reduction, elementsOf(data))
	t.Root, t.reads = root, c.impl.Rank != root
	return setFunc(t.require(c.checkRoot(root)), c, "reduce_func", combine)
}

func (t *task) allReduce(c *Comm, data elements, op Op) *task {
	return t.vector(plan.AllReduce, data).setOp(op, c.Size())
}

func allReduceFunc[T any](t *task, c *Comm, data []T, combine func(dst, src []T)) *task {
	return setFunc(t.vector(plan.AllReduce, elementsOf(data)), c, "all_reduce_func", combine)
}

func scanFunc[T any](t *task, c *Comm, data []T, combine func(dst, src []T)) *task {
	return setFunc(t.vector(plan.Scan, elementsOf(data)), c, "scan_func", combine)
}

func exclusiveScanFunc[T any](t *task, c *Comm, data []T, combine func(dst, src []T)) *task {
	return setFunc(t.vector(plan.ExclusiveScan, elementsOf(data)), c, "exclusive_scan_func", combine)
}

func (t *task) gather(c *Comm, dst, src elements, root int) *task {
	if c.impl.Rank != root {
		dst.at, dst.n = nil, 0
	}
	t.blocks(plan.Gather, dst, src, src.n)
	t.Root, t.InputFirst = root, c.impl.Rank
	t.require(c.checkRoot(root))
	if c.impl.Rank == root {
		t.require(checkLength("dst", dst.n, c.Size()*src.n))
	}
	return t.setInPlace("dst", "src", t.Data, t.Input, root*t.Count, root)
}

func (t *task) allGather(c *Comm, dst, src elements) *task {
	t.blocks(plan.AllGather, dst, src, src.n)
	t.InputFirst = c.impl.Rank
	t.require(checkLength("dst", dst.n, c.Size()*src.n))
	return t.setInPlace("dst", "src", t.Data, t.Input, c.impl.Rank*t.Count, c.impl.Rank)
}

func (t *task) scatter(c *Comm, dst, src elements, root int) *task {
	if c.impl.Rank != root {
		src.at, src.n = nil, 0
	}
	t.blocks(plan.Scatter, dst, src, dst.n)
	t.Root, t.DataFirst = root, c.impl.Rank
	t.require(c.checkRoot(root))
	if c.impl.Rank == root {
		t.require(checkLength("src", src.n, c.Size()*dst.n))
	}
	return t.setInPlace("src", "dst", t.Input, t.Data, root*t.Count, root)
}

func (t *task) reduceScatter(c *Comm, dst, src elements, op Op) *task {
	t.blocks(plan.ReduceScatter, dst, src, dst.n)
	t.DataFirst = c.impl.Rank
	t.require(checkLength("src", src.n, c.Size()*dst.n))
	return t.setInPlace("src", "dst", t.Input, t.Data, c.impl.Rank*t.Count, c.impl.Rank).setOp(op, c.Size())
}

func (t *task) allToAll(c *Comm, dst, src elements) *task {
	t.blocks(plan.AllToAll, dst, src, src.n/c.Size())
	t.require(checkLength("dst", dst.n, src.n))
	if src.n%c.Size() != 0 {
		t.require(fmt.Errorf("%w: src has %d elements, which is no multiple of %d ranks", ErrInvalidLength, src.n, c.Size()))
	}
	return t.setApart()
}

func (t *task) scan(c *Comm, data elements, op Op) *task {
	t.Ordered = true
	return t.vector(plan.Scan, data).setOp(op, c.impl.Rank+1)
}

func (t *task) exclusiveScan(c *Comm, data elements, op Op) *task {
	t.Ordered = true
	return t.vector(plan.ExclusiveScan, data).setOp(op, c.impl.Rank)
}

// The names of the calls in errors.
const (
	minLocName = "min_loc"
	maxLocName = "max_loc"
)

// minMaxLoc is an all-reduce of pairs of an element and a rank.
func minMaxLoc[T Real](t *task, c *Comm, op Op, data []T, ranks []int32) *task {
	pairs := make([]kernel.Located[T], len(data))
	for i, v := range data {
		pairs[i] = kernel.Located[T]{Value: v, Rank: int32(c.impl.Rank)}
	}
	*t = task{
		Shape: selector.Shape{
			Kind: plan.AllReduce, Op: minLocOp,
			// Whole pairs are counted, so that none is divided. The type is that of
			// data, so that calls with data of different types do not match.
			Type: numbersOf(data).of.typ, Count: len(pairs), Elem: int(unsafe.Sizeof(kernel.Located[T]{})),
		},
		label: minLocName, Work: exec.Work{Data: bytesOf(pairs)},
	}
	if op == Max {
		t.label, t.Op = maxLocName, maxLocOp
	}
	t.require(numbersOf(data).err()).require(checkLength("ranks", len(ranks), len(data)))
	if overlap.Two(bytesOf(data), bytesOf(ranks)) {
		t.require(fmt.Errorf("%w: data and ranks share memory", ErrOverlap))
	}
	t.Reduce = kernel.Locate[T](kernel.Type(t.Type), op == Max)
	t.after = func() {
		for i, p := range pairs {
			data[i], ranks[i] = p.Value, p.Rank
		}
	}
	return t
}

// startLocate starts a MinLoc or MaxLoc. The task reduces a copy of data, so data and ranks
// are registered as being in use.
func startLocate[T Real](ctx context.Context, c *Comm, op Op, data []T, ranks []int32) *Handle {
	t := minMaxLoc(new(task), c, op, data, ranks)
	release, busy := c.hold(t.label, bytesOf(data), bytesOf(ranks))
	t.err = cmp.Or(t.err, busy)
	h := c.start(ctx, t)
	return c.follow(func(*Handle) error {
		defer release()
		return h.Wait()
	})
}
