package nexar

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// Broadcast copies data of root to data of all ranks. All have the same
// length.
func Broadcast[T Number](ctx context.Context, c *Comm, data []T, root int) error {
	t := vector(plan.Broadcast, data)
	t.root = root
	if err := c.checkRoot(root); err != nil {
		return opError(t.name(), err)
	}
	return c.run(ctx, t)
}

// Reduce combines data of all ranks, element by element, and leaves the result
// in data of root. On other ranks data is unchanged. All have the same length.
func Reduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) error {
	t := vector(plan.Reduction, data)
	t.root = root
	if err := c.checkRoot(root); err != nil {
		return opError(t.name(), err)
	}
	if err := t.setOp(op); err != nil {
		return opError(t.name(), err)
	}
	err := c.run(ctx, t)
	if c.rank == root {
		t.finish(op, err, c.Size())
	}
	return err
}

// AllReduce combines data of all ranks, element by element, and leaves the
// result in data of every rank, with the same bits everywhere. All have the
// same length. After an error data holds neither.
func AllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	t := vector(plan.AllReduce, data)
	if err := t.setOp(op); err != nil {
		return opError(t.name(), err)
	}
	err := c.run(ctx, t)
	t.finish(op, err, c.Size())
	return err
}

// AllReduceFunc is AllReduce with a function of the caller, which makes
// dst[i] = dst[i] ∘ src[i] for all i. ∘ is associative but need not be
// commutative: it is applied in the order of the ranks. combine is called for
// parts of the vector, by this goroutine or by others, also by several at once;
// it changes dst alone and keeps neither slice. It must not block, call this
// package or panic, as others wait for it; a call that is cancelled ends only
// when combine has returned. If combine panics, so does AllReduceFunc, and the
// communicator is revoked. All ranks use the same function.
func AllReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) error {
	t := vector(plan.AllReduce, data)
	t.op, t.ordered = customOp, true
	if combine == nil {
		return opError(t.name(), fmt.Errorf("%w: the function is nil", ErrInvalidOp))
	}
	guard := &guard{comm: c}
	t.reduce = reducerOf(func(dst, src []T) { guard.call(func() { combine(dst, src) }) })
	err := c.run(ctx, t)
	guard.check()
	return err
}

// Gather collects src of all ranks in dst of root: block r of dst is src of
// rank r. All src have the same length; on root dst is Size times as long, on
// other ranks it is ignored and may be nil. On root src may be its own block of
// dst, dst[root*len(src):(root+1)*len(src)], which then stays as it is; any
// other overlap is an ErrOverlap.
func Gather[T Number](ctx context.Context, c *Comm, dst, src []T, root int) error {
	if c.rank != root {
		dst = nil
	}
	t := blocks(plan.Gather, dst, src, len(src))
	t.root, t.inFirst = root, c.rank
	err := c.checkRoot(root)
	if err == nil && c.rank == root {
		err = checkLength("dst", len(dst), c.Size()*len(src))
	}
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, root)
	}
	if err != nil {
		return opError(t.name(), err)
	}
	return c.run(ctx, t)
}

// AllGather collects src of all ranks in dst of every rank: block r of dst is
// src of rank r. All src have the same length, and dst is Size times as long.
// src may be this rank's own block of dst, dst[Rank*len(src):(Rank+1)*len(src)],
// which then stays as it is, whatever other ranks do; any other overlap is an
// ErrOverlap.
func AllGather[T Number](ctx context.Context, c *Comm, dst, src []T) error {
	t := blocks(plan.AllGather, dst, src, len(src))
	t.inFirst = c.rank
	err := checkLength("dst", len(dst), c.Size()*len(src))
	if err == nil {
		err = t.setInPlace("dst", "src", t.data, t.input, c.rank)
	}
	if err != nil {
		return opError(t.name(), err)
	}
	return c.run(ctx, t)
}

// Scatter deals src of root out: dst of rank r is block r of src. All dst have
// the same length; on root src is Size times as long, on other ranks it is
// ignored and may be nil. On root dst may be its own block of src,
// src[root*len(dst):(root+1)*len(dst)], which then stays as it is; any other
// overlap is an ErrOverlap. src is not changed.
func Scatter[T Number](ctx context.Context, c *Comm, dst, src []T, root int) error {
	if c.rank != root {
		src = nil
	}
	t := blocks(plan.Scatter, dst, src, len(dst))
	t.root, t.first = root, c.rank
	err := c.checkRoot(root)
	if err == nil && c.rank == root {
		err = checkLength("src", len(src), c.Size()*len(dst))
	}
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, root)
	}
	if err != nil {
		return opError(t.name(), err)
	}
	return c.run(ctx, t)
}

// ReduceScatter combines src of all ranks, element by element, and leaves
// block r of the result in dst of rank r. All dst have the same length, and
// src is Size times as long. dst may be this rank's own block of src,
// src[Rank*len(dst):(Rank+1)*len(dst)], whatever other ranks do; any other
// overlap is an ErrOverlap. Save for that block src is not changed.
func ReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) error {
	t := blocks(plan.ReduceScatter, dst, src, len(dst))
	t.first = c.rank
	err := checkLength("src", len(src), c.Size()*len(dst))
	if err == nil {
		err = t.setInPlace("src", "dst", t.input, t.data, c.rank)
	}
	if err == nil {
		err = t.setOp(op)
	}
	if err != nil {
		return opError(t.name(), err)
	}
	err = c.run(ctx, t)
	t.finish(op, err, c.Size())
	return err
}

// AllToAll sends block r of src to rank r: block i of dst is block Rank of src
// of rank i. dst and src have the same length on all ranks, a multiple of
// Size. Any overlap of them is an ErrOverlap.
func AllToAll[T Number](ctx context.Context, c *Comm, dst, src []T) error {
	t := blocks(plan.AllToAll, dst, src, len(src)/c.Size())
	err := checkLength("dst", len(dst), len(src))
	if err == nil && len(src)%c.Size() != 0 {
		err = fmt.Errorf("%w: src has %d elements, which is no multiple of %d ranks", ErrInvalidLength, len(src), c.Size())
	}
	if err == nil && overlap(t.data, t.input) {
		err = fmt.Errorf("%w: dst and src share memory", ErrOverlap)
	}
	if err != nil {
		return opError(t.name(), err)
	}
	return c.run(ctx, t)
}

// Scan combines data of the ranks 0 to Rank, element by element and in this
// order, and leaves the result in data: the inclusive prefix. All have the
// same length.
func Scan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return scan(ctx, c, vector(plan.Scan, data), op, c.rank+1)
}

// ExclusiveScan combines data of the ranks before this one, element by element
// and in their order, and leaves the result in data. On rank 0 data is
// unchanged. All have the same length.
func ExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) error {
	return scan(ctx, c, vector(plan.ExclusiveScan, data), op, max(1, c.rank))
}

func scan(ctx context.Context, c *Comm, t task, op Op, ranks int) error {
	t.ordered = true
	if err := t.setOp(op); err != nil {
		return opError(t.name(), err)
	}
	err := c.run(ctx, t)
	t.finish(op, err, ranks)
	return err
}

// vector is a task that works on data in place.
func vector[T Number](kind plan.Collective, data []T) task {
	return task{kind: kind, typ: typeOf[T](), count: len(data), data: bytesOf(data)}
}

// blocks is a task with a block of count elements for each rank.
func blocks[T Number](kind plan.Collective, dst, src []T, count int) task {
	return task{
		kind: kind, typ: typeOf[T](), count: count, blocks: true,
		data: bytesOf(dst), input: bytesOf(src),
	}
}

// setInPlace looks whether part is block own of whole, in which case the task
// is carried out in place. Any other overlap is an error.
func (t *task) setInPlace(wholeName, partName string, whole, part []byte, own int) error {
	if !overlap(whole, part) {
		return nil
	}
	if &whole[own*len(part)] != &part[0] {
		return fmt.Errorf("%w: %s shares memory with %s, of which it may only be block %d", ErrOverlap, partName, wholeName, own)
	}
	t.inPlace = true
	return nil
}

func (t *task) setOp(op Op) error {
	t.reduce = kernel.Reducer(t.typ, kernel.Op(op))
	if t.reduce == nil {
		return fmt.Errorf("%w: %v of %v", ErrInvalidOp, op, t.typ)
	}
	t.op = uint8(op)
	return nil
}

// finish divides the sum of so many ranks for Avg.
func (t *task) finish(op Op, err error, ranks int) {
	if op == Avg && err == nil && ranks > 1 {
		kernel.Divider(t.typ)(t.data, ranks)
	}
}

// reducerOf is a reduction of bytes by a function on elements.
func reducerOf[T Number](combine func(dst, src []T)) func(dst, a, b []byte) {
	scratch := sync.Pool{New: func() any { return new([2][]T) }}
	return func(dst, a, b []byte) {
		// The operands may be another rank's memory, which must not change
		// whatever combine does, and dst may be one of them.
		s := scratch.Get().(*[2][]T)
		defer scratch.Put(s)
		for i, operand := range [2][]byte{a, b} {
			n := len(operand) / int(unsafe.Sizeof(*new(T)))
			s[i] = append(s[i][:0], make([]T, n)...)
			copy(bytesOf(s[i]), operand)
		}
		combine(s[0], s[1])
		copy(dst, bytesOf(s[0]))
	}
}

func (c *Comm) checkRoot(root int) error {
	if root < 0 || root >= c.Size() {
		return fmt.Errorf("%w: root %d of %d ranks", ErrInvalidRank, root, c.Size())
	}
	return nil
}

func checkLength(name string, got, want int) error {
	if got != want {
		return fmt.Errorf("%w: %s has %d elements, not %d", ErrInvalidLength, name, got, want)
	}
	return nil
}
