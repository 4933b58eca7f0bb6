package collective

import (
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// Barrier prepares a barrier.
func (t *Task) Barrier() *Task {
	t.Kind, t.Elem = plan.Barrier, 1
	return t
}

// Broadcast prepares a broadcast of data from root.
func (t *Task) Broadcast(r *Runner, data Elements, root int) *Task {
	t.vector(plan.Broadcast, data)
	t.Root, t.ReadOnly = root, r.Rank == root
	return t.Require(r.CheckRoot(root))
}

// Reduction prepares a reduction to root.
func (t *Task) Reduction(r *Runner, data Elements, op kernel.Op, root int) *Task {
	t.vector(plan.Reduction, data)
	t.Root, t.ReadOnly = root, r.Rank != root
	t.Require(r.CheckRoot(root)).setOp(op, r.Size)
	if r.Rank != root {
		t.Divisor = 0
	}
	return t
}

// ReduceFunc is Reduction by a function of the caller; see [SetFunc].
func ReduceFunc[T any](t *Task, r *Runner, data Elements, combine func(dst, src []T), root int) *Task {
	t.vector(plan.Reduction, data)
	t.Root, t.ReadOnly = root, r.Rank != root
	return SetFunc(t.Require(r.CheckRoot(root)), r, "reduce_func", combine)
}

// AllReduce prepares an all-reduce.
func (t *Task) AllReduce(r *Runner, data Elements, op kernel.Op) *Task {
	return t.vector(plan.AllReduce, data).setOp(op, r.Size)
}

// AllReduceFunc is AllReduce by a function of the caller.
func AllReduceFunc[T any](t *Task, r *Runner, data Elements, combine func(dst, src []T)) *Task {
	return SetFunc(t.vector(plan.AllReduce, data), r, "all_reduce_func", combine)
}

// ScanFunc is Scan by a function of the caller.
func ScanFunc[T any](t *Task, r *Runner, data Elements, combine func(dst, src []T)) *Task {
	return SetFunc(t.vector(plan.Scan, data), r, "scan_func", combine)
}

// ExclusiveScanFunc is ExclusiveScan by a function of the caller.
func ExclusiveScanFunc[T any](t *Task, r *Runner, data Elements, combine func(dst, src []T)) *Task {
	return SetFunc(t.vector(plan.ExclusiveScan, data), r, "exclusive_scan_func", combine)
}

// Gather prepares a gather to root. It ignores dst on other ranks.
func (t *Task) Gather(r *Runner, dst, src Elements, root int) *Task {
	if r.Rank != root {
		dst.At, dst.N = nil, 0
	}
	t.blocks(plan.Gather, dst, src, src.N)
	t.Root, t.InputFirst = root, r.Rank
	t.Require(r.CheckRoot(root))
	if r.Rank == root {
		t.Require(checkLength("dst", dst.N, r.Size*src.N))
	}
	return t.setInPlace("dst", "src", t.Data, t.Input, root*t.Count, root)
}

// AllGather prepares an all-gather.
func (t *Task) AllGather(r *Runner, dst, src Elements) *Task {
	t.blocks(plan.AllGather, dst, src, src.N)
	t.InputFirst = r.Rank
	t.Require(checkLength("dst", dst.N, r.Size*src.N))
	return t.setInPlace("dst", "src", t.Data, t.Input, r.Rank*t.Count, r.Rank)
}

// Scatter prepares a scatter from root. It ignores src on other ranks.
func (t *Task) Scatter(r *Runner, dst, src Elements, root int) *Task {
	if r.Rank != root {
		src.At, src.N = nil, 0
	}
	t.blocks(plan.Scatter, dst, src, dst.N)
	t.Root, t.DataFirst = root, r.Rank
	t.Require(r.CheckRoot(root))
	if r.Rank == root {
		t.Require(checkLength("src", src.N, r.Size*dst.N))
	}
	return t.setInPlace("src", "dst", t.Input, t.Data, root*t.Count, root)
}

// ReduceScatter prepares a reduce-scatter.
func (t *Task) ReduceScatter(r *Runner, dst, src Elements, op kernel.Op) *Task {
	t.blocks(plan.ReduceScatter, dst, src, dst.N)
	t.DataFirst = r.Rank
	t.Require(checkLength("src", src.N, r.Size*dst.N))
	return t.setInPlace("src", "dst", t.Input, t.Data, r.Rank*t.Count, r.Rank).setOp(op, r.Size)
}

// AllToAll prepares an all-to-all.
func (t *Task) AllToAll(r *Runner, dst, src Elements) *Task {
	t.blocks(plan.AllToAll, dst, src, src.N/r.Size)
	t.Require(checkLength("dst", dst.N, src.N))
	if src.N%r.Size != 0 {
		t.Require(fmt.Errorf("%w: src has %d elements, not a multiple of %d ranks", ErrLength, src.N, r.Size))
	}
	return t.setApart()
}

// Scan prepares an inclusive scan.
func (t *Task) Scan(r *Runner, data Elements, op kernel.Op) *Task {
	t.Ordered = true
	return t.vector(plan.Scan, data).setOp(op, r.Rank+1)
}

// ExclusiveScan prepares an exclusive scan.
func (t *Task) ExclusiveScan(r *Runner, data Elements, op kernel.Op) *Task {
	t.Ordered, t.Empty = true, r.Rank == 0
	return t.vector(plan.ExclusiveScan, data).setOp(op, r.Rank)
}

// Locate prepares an all-reduce that finds the smallest value of each element of data, or the largest
// if most is set, and the lowest rank that has it. elements describes data.
func Locate[T Real](t *Task, r *Runner, most bool, data []T, elements Elements, ranks []int32) *Task {
	pairs := make([]kernel.Located[T], len(data))
	for i, v := range data {
		pairs[i] = kernel.Located[T]{Value: v, Rank: int32(r.Rank)}
	}
	*t = Task{
		Shape: selector.Shape{
			Kind: plan.AllReduce, Op: MinLocOp,
			// The unit is a pair, so that no move divides one. The type is that of data,
			// so that calls with data of different types are a mismatch.
			Type: elements.Of.Type, Count: len(pairs), Elem: int(unsafe.Sizeof(kernel.Located[T]{})),
		},
		Label: MinLocName, Work: exec.Work{Data: bytesOf(pairs)},
	}
	if most {
		t.Label, t.Op = MaxLocName, MaxLocOp
	}
	t.Require(elements.Err()).Require(checkLength("ranks", len(ranks), len(data)))
	if overlap.Two(bytesOf(data), bytesOf(ranks)) {
		t.Require(fmt.Errorf("%w: data and ranks share memory", ErrOverlap))
	}
	t.Reduce = kernel.Locate[T](kernel.Type(t.Type), most)
	t.After = func() {
		for i, p := range pairs {
			data[i], ranks[i] = p.Value, p.Rank
		}
	}
	return t
}

// Real has the types of elements that have an order.
type Real interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}
