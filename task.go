package nexar

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/guard"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recipe"
)

// What is in fingerprints in place of a kernel.Op.
const (
	customOp     = 255 - iota // a function of the caller
	minLocOp                  // for a MinLoc
	maxLocOp                  // for a MaxLoc
	countsOp                  // nothing is reduced: part of an AllToAllV
	compressedOp              // nothing is reduced: part of an AllReduceCompressed
	splitOp                   // nothing is reduced: part of a Split, Dup or Sub
	checkpointOp              // for a Checkpoint
	syncOp                    // nothing is reduced: part of a Sync
)

// opaque is the type in the fingerprint of elements that are only moved. Their
// bytes are counted.
const opaque = 255

// A task is a collective to run, with its parameters checked.
type task struct {
	kind    plan.Collective
	label   string // of the call, if that is not the kind's
	typ     uint8  // kernel.Type or opaque; 0 if there is no data
	elem    int    // bytes of an element, or of what is counted in its place
	op      uint8  // kernel.Op or what is in its place; 0 if there is neither
	root    int
	count   int    // elements of the vector, or of a block
	digest  uint32 // of what else ranks have in common about a vector; 0 if nothing
	blocks  bool   // chunks are blocks of count elements
	uneven  *uneven
	data    []byte
	input   []byte
	first   int  // chunk that data begins with
	inFirst int  // chunk that input begins with
	inPlace bool // data and input are one, the longer of the two
	reduce  func(dst, a, b []byte)
	ordered bool
	reads   bool         // data is not written
	ranks   int          // by which the result is divided in the end, for Avg
	guard   *guard.Guard // of a function of the caller
	after   func()       // what else is to be done when all has gone well
}

// elements are those of a vector, whatever their type is.
type elements struct {
	mem  []byte
	n    int
	typ  uint8 // kernel.Type or opaque
	size int   // of one, in bytes
	err  error // of the type
}

func elementsOf[T any](s []T) elements {
	e := elements{mem: bytesOf(s), n: len(s)}
	e.typ, e.size, e.err = elementOf[T]()
	return e
}

// none is no elements of the same type.
func (e elements) none() elements {
	e.mem, e.n = nil, 0
	return e
}

// elementOf is the type and the size of T as tasks have them.
func elementOf[T any]() (typ uint8, size int, err error) {
	var zero T
	if t, ok := numberOf[T](); ok {
		return uint8(t), t.Size(), nil
	}
	if t := reflect.TypeFor[T](); !kernel.Plain(t) {
		return 0, 0, fmt.Errorf("%w: %v has pointers, or no size", ErrInvalidType, t)
	}
	return opaque, int(unsafe.Sizeof(zero)), nil
}

// vector is a task that works on data in place.
func vector(kind plan.Collective, data elements) (task, error) {
	t := task{kind: kind, typ: data.typ, data: data.mem}
	t.count, t.elem = counted(data.typ, data.n, data.size)
	return t, data.err
}

// blocks is a task with a block of count elements for each rank.
func blocks(kind plan.Collective, dst, src elements, count int) (task, error) {
	t := task{kind: kind, typ: dst.typ, blocks: true, data: dst.mem, input: src.mem}
	t.count, t.elem = counted(dst.typ, count, dst.size)
	return t, dst.err
}

// counted is how many elements of which size count elements stand for: the bytes
// of those that are only moved.
func counted(typ uint8, count, size int) (n, elem int) {
	if typ == opaque {
		return count * size, 1
	}
	return count, size
}

// setInPlace looks whether part begins at element at of whole, in which case the
// task is carried out in place. Any other overlap is an error.
func (t *task) setInPlace(wholeName, partName string, whole, part []byte, at, block int) error {
	if !overlap.Two(whole, part) {
		return nil
	}
	if at*t.elem >= len(whole) || &whole[at*t.elem] != &part[0] {
		return fmt.Errorf("%w: %s shares memory with %s, of which it may only be block %d", ErrOverlap, partName, wholeName, block)
	}
	t.inPlace = true
	return nil
}

// setOp is for an op on so many ranks' vectors.
func (t *task) setOp(op Op, ranks int) error {
	t.reduce = kernel.Reducer(kernel.Type(t.typ), kernel.Op(op))
	if t.reduce == nil {
		return fmt.Errorf("%w: %v of %v", ErrInvalidOp, op, kernel.Type(t.typ))
	}
	t.op = uint8(op)
	if op == Avg {
		t.ranks = ranks
	}
	return nil
}

// setFunc is for a function of the caller, which is applied in the order of the
// ranks.
func setFunc[T any](t *task, c *Comm, label string, combine func(dst, src []T)) error {
	t.label, t.op, t.ordered = label, customOp, true
	if combine == nil {
		return fmt.Errorf("%w: the function is nil", ErrInvalidOp)
	}
	g := &guard.Guard{Label: label, Failed: c.comm.Cancel}
	t.guard = g
	t.reduce = kernel.Custom(func(dst, src []T) { g.Call(func() { combine(dst, src) }) })
	return nil
}

func (t *task) name() string { return cmp.Or(t.label, t.kind.String()) }

// run carries a task out, unless there is an error in its parameters.
func (c *Comm) run(ctx context.Context, t task, bad error) error {
	op, err := c.begin(ctx, &t, bad)
	if err != nil {
		return err
	}
	err = c.end(ctx, &t, op)
	if t.guard != nil {
		t.guard.Check()
	}
	return err
}

// begin gives a task its place among the collectives of the communicator.
func (c *Comm) begin(ctx context.Context, t *task, bad error) (*engine.Op, error) {
	if bad != nil {
		return nil, opError(t.name(), bad)
	}
	if err := c.over(ctx); err != nil {
		c.comm.Cancel(context.Cause(ctx)) // The other ranks would wait in vain.
		return nil, opError(t.name(), err)
	}
	work := t.work(c)
	work.Timeout = c.home.collectiveTimeout
	switch {
	case t.kind == plan.Barrier:
		work.Timeout = c.home.barrierTimeout
	case t.op == checkpointOp:
		work.Timeout = c.home.checkpointTimeout
	}
	op, err := c.comm.Start(&work)
	if err != nil {
		return nil, c.explain(ctx, t.name(), err)
	}
	return op, nil
}

// end waits for the end of what has begun.
func (c *Comm) end(ctx context.Context, t *task, op *engine.Op) error {
	if err := op.Wait(ctx); err != nil {
		return c.explain(ctx, t.name(), err)
	}
	if t.ranks > 1 {
		kernel.Divider(kernel.Type(t.typ))(t.data, t.ranks)
	}
	if t.after != nil {
		t.after()
	}
	return nil
}

// canonical reports whether collectives of a kind are to have the same bits
// whatever the algorithm is.
func (c *Comm) canonical(kind plan.Collective) bool { return c.home.deterministic && kind.Reduces() }

// work is how a task is carried out.
func (t *task) work(c *Comm) engine.Work {
	r := recipe.Task{
		Kind: t.kind, Type: t.typ, Op: t.op, Root: t.root, Elem: max(1, t.elem), Count: t.count,
		Blocks: t.blocks, InPlace: t.inPlace, Ordered: t.ordered,
		Canonical: c.canonical(t.kind) && t.op != 0, Digest: t.digest,
	}
	if u := t.uneven; u != nil {
		r.Uneven, r.Total = &u.lengths, u.total
	}
	w := c.book.Work(r)
	w.Data, w.DataFirst, w.Input, w.InputFirst = t.data, t.first, t.input, t.inFirst
	if t.inPlace {
		if len(t.input) > len(t.data) {
			w.Data, w.DataFirst = t.input, t.inFirst
		}
		w.Input, w.InputFirst = w.Data, w.DataFirst // Some plans take them for two.
	}
	w.Reduce = t.reduce
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
