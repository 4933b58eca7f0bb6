package nexar

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// These values stand in fingerprints in place of a kernel.Op.
const (
	customOp      = 255 - iota // a function of the caller
	minLocOp                   // for a MinLoc
	maxLocOp                   // for a MaxLoc
	countsOp                   // nothing is reduced: part of an AllToAllV
	compressedOp               // nothing is reduced: part of an AllReduceCompressed
	splitOp                    // nothing is reduced: part of a Split, Dup or Sub
	reconfigureOp              // nothing is reduced: part of a Reconfigure
	syncOp                     // nothing is reduced: part of a Sync
	valuesOp                   // nothing is reduced: part of a BroadcastValues
	meanOp                     // a sum: part of an AllReduceMean
)

// opaque is the type in the fingerprint of elements that are only moved. Their
// bytes are counted.
const opaque = 255

// A task is a call of a collective, with its parameters checked. The Selector returns the
// schedule for its Shape, and an engine.Op carries out its Work.
type task struct {
	selector.Shape
	exec.Work
	label  string          // of the call, if that is not the kind's
	reads  bool            // Data is not written
	ranks  int             // divisor of the result, for Avg
	guard  *callback.Guard // of a function of the caller
	before func()          // is called when the task starts
	after  func()          // is called when the collective has succeeded
	err    error           // of the parameters
}

// elements describes the elements of a vector of any type. It fits into registers.
type elements struct {
	at  *byte // nil if there are none, or their address is not known yet
	n   int
	of  element
	bad *error // of the type
}

// An element is a type of elements, as tasks have it.
type element struct {
	typ  uint8  // kernel.Type or opaque
	size uint32 // in bytes
}

func elementsOf[T any](s []T) elements {
	of, err := elementOf[T]()
	e := elements{at: (*byte)(unsafe.Pointer(unsafe.SliceData(s))), n: len(s), of: of}
	if err != nil {
		bad := err
		e.bad = &bad
	}
	return e
}

// numbersOf is elementsOf for vectors that an Op reduces.
func numbersOf[T Number](s []T) elements {
	e := elementsOf(s)
	if e.of.typ == opaque {
		t := reflect.TypeFor[T]()
		err := fmt.Errorf("%w: %v has %d bits on this platform: use int64 or uint64", ErrInvalidType, t, t.Bits())
		if t.Bits() == 16 {
			err = fmt.Errorf("%w: %v may be an integer or a float: convert the vector by nexar.View[nexar.BFloat16], nexar.View[nexar.Float16] or nexar.View[%v]",
				ErrInvalidType, t, t.Kind())
		}
		e.bad = &err
	}
	return e
}

// elementOf describes the elements of type T.
func elementOf[T any]() (element, error) {
	if t, ok := numberOf[T](); ok {
		return element{uint8(t), uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	t := reflect.TypeOf((*T)(nil)).Elem() // TypeFor would box a T.
	if number, ok := numberOfKind(t.Kind()); ok {
		return element{uint8(number), uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	return opaqueElement(t)
}

// opaqueElement describes the elements of a type that is not reduced as a number.
func opaqueElement(t reflect.Type) (element, error) {
	switch {
	case !kernel.Plain(t):
		return element{}, fmt.Errorf("%w: %v has pointers, or no size", ErrInvalidType, t)
	case t.Size() > math.MaxUint32:
		return element{}, fmt.Errorf("%w: %v has more than %d bytes", ErrInvalidType, t, uint32(math.MaxUint32))
	}
	return element{opaque, uint32(t.Size())}, nil
}

// err is the error of the type.
func (e elements) err() error {
	if e.bad != nil {
		return *e.bad
	}
	return nil
}

// mem is the memory of the elements.
func (e elements) mem() []byte {
	if e.at == nil {
		return nil
	}
	return unsafe.Slice(e.at, e.n*int(e.of.size))
}

// The methods below fill in a zero task in place, and return it: copying a task
// that has been written field by field is slow.

// require notes an error of the parameters, unless there is one already.
func (t *task) require(err error) *task {
	if t.err == nil {
		t.err = err
	}
	return t
}

// vector is for a task that works on data in place.
func (t *task) vector(kind plan.Collective, data elements) *task {
	t.Kind, t.Type, t.Data = kind, data.of.typ, data.mem()
	t.Count, t.Elem = data.of.counted(data.n)
	return t.require(data.err())
}

// blocks is for a task with a block of count elements for each rank.
func (t *task) blocks(kind plan.Collective, dst, src elements, count int) *task {
	t.Kind, t.Type, t.Blocks, t.Data, t.Input = kind, dst.of.typ, true, dst.mem(), src.mem()
	t.Count, t.Elem = dst.of.counted(count)
	return t.require(dst.err())
}

// counted returns the number and size of count elements as tasks count them. Opaque
// elements are counted in bytes.
func (e element) counted(count int) (n, size int) {
	if e.typ == opaque {
		return count * int(e.size), 1
	}
	return count, int(e.size)
}

// setInPlace makes the task work in place if part begins at element at of whole.
// Any other overlap is an error.
func (t *task) setInPlace(wholeName, partName string, whole, part []byte, at, block int) *task {
	if t.err != nil || !overlap.Two(whole, part) {
		return t
	}
	if at*t.Elem >= len(whole) || &whole[at*t.Elem] != &part[0] {
		return t.require(fmt.Errorf("%w: %s shares memory with %s, of which it may only be block %d", ErrOverlap, partName, wholeName, block))
	}
	t.InPlace = true
	return t
}

// setApart requires that data and input do not overlap.
func (t *task) setApart() *task {
	if t.err == nil && overlap.Two(t.Data, t.Input) {
		t.err = fmt.Errorf("%w: dst and src share memory", ErrOverlap)
	}
	return t
}

// setOp is for an op on the vectors of so many ranks.
func (t *task) setOp(op Op, ranks int) *task {
	t.Reduce = kernel.Reducer(kernel.Type(t.Type), kernel.Op(op))
	if t.Reduce == nil {
		return t.require(fmt.Errorf("%w: %v of %v", ErrInvalidOp, op, kernel.Type(t.Type)))
	}
	t.Op = uint8(op)
	if op == Avg {
		t.ranks = ranks
	}
	return t
}

// setFunc is for a function of the caller, which is applied in the order of the ranks. The
// elements may be structs: then all ranks must have the same layout of them, and padding is
// zero, so that results have the same bits.
func setFunc[T any](t *task, c *Comm, label string, combine func(dst, src []T)) *task {
	t.label, t.Op, t.Ordered = label, customOp, true
	if combine == nil {
		return t.require(fmt.Errorf("%w: the function is nil", ErrInvalidOp))
	}
	g := &callback.Guard{Label: label, Failed: c.comm.Cancel}
	t.guard = g
	if t.err != nil || t.Type != opaque {
		t.Reduce = kernel.Custom(func(dst, src []T) { g.Call(func() { combine(dst, src) }) })
		return t
	}
	// Whole structs are counted, so that no move divides one.
	layout := kernel.LayoutOf(reflect.TypeFor[T]())
	t.Elem = int(unsafe.Sizeof(*new(T)))
	t.Count, t.Digest = len(t.Data)/t.Elem, engine.Digest(layout.Fields)|1<<31
	t.Reduce = kernel.Custom(func(dst, src []T) {
		g.Call(func() { combine(dst, src) })
		layout.ClearPadding(bytesOf(dst))
	})
	t.before = func() { layout.ClearPadding(t.Data) }
	return t
}

func (t *task) name() string { return cmp.Or(t.label, t.Kind.String()) }

// run carries a task out, unless its parameters are wrong.
func (c *Comm) run(ctx context.Context, t *task) error {
	op, err := c.begin(ctx, t)
	if err != nil {
		return err
	}
	err = c.end(ctx, t, op)
	if t.guard != nil {
		t.guard.Check()
	}
	return err
}

// begin gives a task its sequence number and starts it.
func (c *Comm) begin(ctx context.Context, t *task) (*engine.Op, error) {
	if t.err != nil {
		return nil, opError(t.name(), t.err)
	}
	if err := c.over(ctx); err != nil {
		c.comm.Cancel(context.Cause(ctx)) // The other ranks would wait in vain.
		return nil, opError(t.name(), err)
	}
	if t.before != nil {
		t.before()
	}
	t.Canonical = c.canonical(t.Kind) && t.Op != 0
	t.Schedule, t.Timeout = c.selector.Schedule(&t.Shape), c.timeout(t)
	work, merged := &t.Work, exec.Work{}
	if t.InPlace {
		merged = t.inPlace()
		work = &merged
	}
	op, err := c.comm.Start(work)
	if err != nil {
		return nil, c.explain(ctx, t.name(), err)
	}
	return op, nil
}

// end waits for the end of a task that begin has started.
func (c *Comm) end(ctx context.Context, t *task, op *engine.Op) error {
	if err := op.Wait(ctx); err != nil {
		return c.explain(ctx, t.name(), err)
	}
	if t.ranks > 1 {
		kernel.Divider(kernel.Type(t.Type))(t.Data, t.ranks)
	}
	if t.after != nil {
		t.after()
	}
	return nil
}

// canonical reports whether the algorithm must not change the bits of results of
// collectives of a kind.
func (c *Comm) canonical(kind plan.Collective) bool { return c.node.deterministic && kind.Reduces() }

// timeout limits the time without progress of a task.
func (c *Comm) timeout(t *task) time.Duration {
	switch {
	case t.Kind == plan.Barrier:
		return c.node.barrierTimeout
	case t.Op == reconfigureOp:
		return c.node.reconfigureTimeout
	}
	return c.node.collectiveTimeout
}

// inPlace returns the work of a task in place: data and input are one buffer, the longer of the
// two.
func (t *task) inPlace() exec.Work {
	w := t.Work
	if len(w.Input) > len(w.Data) {
		w.Data, w.DataFirst = w.Input, w.InputFirst
	}
	w.Input, w.InputFirst = w.Data, w.DataFirst // Some plans use both.
	return w
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
