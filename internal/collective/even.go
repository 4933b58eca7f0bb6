package collective

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// OnVector prepares a collective that works on data in place: its descriptor has Both.
func (t *Task) OnVector(r *Runner, kind plan.Collective, data Elements, op kernel.Op, root int) *Task {
	return t.setOp(r, t.vector(r, kind, data, root), op)
}

// OnVectorFunc is OnVector with a function of the caller, which is called in the order of the ranks. The elements may be structs. Then
// the fingerprint contains their layout, so that all ranks must have the same, and padding is set to
// zero, so that all results have the same bits.
func OnVectorFunc[T any](t *Task, r *Runner, kind plan.Collective, data Elements, combine func(dst, src []T), root int) *Task {
	t.Op, t.Ordered = FuncOp, true
	if t.vector(r, kind, data, root); combine == nil {
		return t.Require(fmt.Errorf("%w: the function is nil", ErrOp))
	}
	g := &callback.Guard{Label: t.Name(), Failed: r.Engine.Cancel}
	t.Guard = g
	if t.Err != nil || t.Type != Opaque {
		t.Reduce = kernel.Custom(func(dst, src []T) { g.Call(func() { combine(dst, src) }) })
		return t
	}
	// The unit is a struct, so that no move divides one.
	layout := kernel.LayoutOf(reflect.TypeFor[T]())
	t.Elem = int(unsafe.Sizeof(*new(T)))
	t.Count, t.Digest = len(t.Data)/t.Elem, engine.Digest(layout.Fields)|1<<31
	t.Reduce = kernel.Custom(func(dst, src []T) {
		g.Call(func() { combine(dst, src) })
		layout.ClearPadding(bytesOf(dst))
	})
	t.Before = func() { layout.ClearPadding(t.Data) }
	return t
}

func (t *Task) vector(r *Runner, kind plan.Collective, data Elements, root int) *plan.Descriptor {
	d := kind.Descriptor()
	t.Kind, t.Type, t.Data, t.Root = kind, data.Of.Type, data.memory(), root
	t.Count, t.Elem = data.Of.Counted(data.N)
	t.Require(data.Err())
	if d.Rooted {
		t.ReadOnly = !d.Taken.At.Have(r.Rank, root)
		t.Require(r.CheckRoot(root))
	}
	return d
}

// OnBlocks prepares a collective with a block for each rank: its descriptor does not have Both. dst is ignored on ranks that
// get nothing, and src on ranks that give nothing.
func (t *Task) OnBlocks(r *Runner, kind plan.Collective, dst, src Elements, op kernel.Op, root int) *Task {
	d := t.blocks(r, kind, &dst, &src, root)
	block := src.N
	switch {
	case d.Taken.Own:
		block = dst.N
	case !d.Given.Own:
		block = src.N / r.Size
	}
	t.Count, t.Elem = dst.Of.Counted(block)
	if d.Parts() {
		return t.part(r, d, dst, src, block, r.Size*block, r.Rank*t.Count).setOp(r, d, op)
	}
	t.Require(checkLength("dst", dst.N, src.N))
	if src.N%r.Size != 0 {
		t.Require(fmt.Errorf("%w: src has %d elements, not a multiple of %d ranks", ErrLength, src.N, r.Size))
	}
	return t.setApart().setOp(r, d, op)
}

// blocks removes the vector that this rank does not have.
func (t *Task) blocks(r *Runner, kind plan.Collective, dst, src *Elements, root int) *plan.Descriptor {
	d := kind.Descriptor()
	if !d.Taken.At.Have(r.Rank, root) {
		dst.At, dst.N = nil, 0
	}
	if !d.Given.At.Have(r.Rank, root) {
		src.At, src.N = nil, 0
	}
	t.Kind, t.Type, t.Blocks, t.Data, t.Input, t.Root = kind, dst.Of.Type, true, dst.memory(), src.memory(), root
	if d.Taken.Own {
		t.DataFirst = r.Rank
	}
	if d.Given.Own {
		t.InputFirst = r.Rank
	}
	t.Require(dst.Err())
	if d.Rooted {
		t.Require(r.CheckRoot(root))
	}
	return d
}

// part checks two vectors, one of them a block of the other. It makes the task work in place if the block stands at its place, which
// begins with the unit at. own and all are the required numbers of their elements.
func (t *Task) part(r *Runner, d *plan.Descriptor, dst, src Elements, own, all, at int) *Task {
	whole, part, wholeName, partName, ranks := dst, src, "dst", "src", d.Taken.At
	if d.Taken.Own {
		whole, part, wholeName, partName, ranks = src, dst, "src", "dst", d.Given.At
	}
	t.Require(checkLength(partName, part.N, own))
	if ranks.Have(r.Rank, t.Root) {
		t.Require(checkLength(wholeName, whole.N, all))
	}
	if t.Err != nil || !overlap.Two(whole.memory(), part.memory()) {
		return t
	}
	if at *= t.Elem; at >= len(whole.memory()) || &whole.memory()[at] != part.At {
		return t.Require(fmt.Errorf("%w: %s shares memory with %s, but is not block %d of it", ErrOverlap, partName, wholeName, r.Rank))
	}
	t.InPlace = true
	return t
}

// setApart requires that data and input do not overlap.
func (t *Task) setApart() *Task {
	if t.Err == nil && overlap.Two(t.Data, t.Input) {
		t.Err = fmt.Errorf("%w: dst and src share memory", ErrOverlap)
	}
	return t
}

// setOp makes a task reduce by op if its collective reduces.
func (t *Task) setOp(r *Runner, d *plan.Descriptor, op kernel.Op) *Task {
	if d.Operands == plan.NoRanks {
		return t
	}
	t.Reduce = kernel.Reducer(kernel.Type(t.Type), op)
	if t.Reduce == nil {
		return t.Require(fmt.Errorf("%w: %s is not defined for %v", ErrOp, nameOf(op, "op", uint8(op)), kernel.Type(t.Type)))
	}
	t.Op, t.Ordered = uint8(op), d.Operands.Prefix()
	ranks := d.Operands.Count(r.Rank, r.Size)
	t.Empty = ranks == 0
	if op == kernel.Avg && !t.ReadOnly {
		t.Divisor = ranks
	}
	return t
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
		Work: exec.Work{Data: bytesOf(pairs)},
	}
	if most {
		t.Op = MaxLocOp
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
