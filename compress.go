package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// AllReduceCompressed is [AllReduce] with lossy compression: each rank compresses its
// vector, receives the encodings of all ranks, and combines them in the order of the ranks,
// so that every rank has the same bits. Compressors are in package compress; all ranks use
// the same kind.
//
// Every [compress.Compressor] supports [Sum] and [Avg] of floating-point vectors. It encodes and adds them in
// float32, so float64 elements are rounded to float32. A [compress.TypedCompressor] supports more: its method Allows reports the types and
// operations. If it allows float64, float64 vectors are encoded and added in float64. All compressors of
// package compress are typed; [compress.None] allows every type and operation. If the compressor does not
// allow the type or operation, the error is an [ErrInvalidOp].
//
// On each rank the call takes memory for the encodings of all ranks, of
// Compressor.MaxBytes each. If this exceeds [Config].CompressedMaxBytes on a rank, it is an
// [ErrTooLarge] before any of it is allocated there.
//
// All ranks get a [CompressError] if a rank differs from rank 0 in the length or type of its
// vector, in op or in the kind of its compressor, if its vector is too large or cannot be
// compressed, or if its encoding is not valid. The communicator can still be used. After
// every error data is unchanged. If comp panics, so does AllReduceCompressed, on that rank
// alone: the others get a [CompressError] if the panic was before the exchange of the
// encodings, and otherwise their result.
func AllReduceCompressed[T Number](ctx context.Context, c *Comm, data []T, op Op, comp compress.Compressor) error {
	return c.allReduceCompressed(ctx, numbersOf(data), bytesOf(data), op, comp)
}

// allReduceCompressed is AllReduceCompressed of a vector in memory of the host.
func (c *Comm) allReduceCompressed(ctx context.Context, e elements, data []byte, op Op, comp compress.Compressor) error {
	t, err := compressedTask(ctx, c, e, data, op, comp)
	if err != nil {
		return err
	}
	defer t.free()
	if err := c.run(ctx, &t.task); err != nil {
		return err
	}
	return finish(t, data, op)
}

// StartAllReduceCompressed starts an [AllReduceCompressed]; see [Handle]. It blocks until all ranks
// have called it and compressed their vectors. Then comp may be used for another vector, if its own
// documentation allows that. If comp panics later, so does [Handle.Wait]; if it ends its goroutine
// then, as t.FailNow does, Wait returns a [CompressError] that names this rank.
func StartAllReduceCompressed[T Number](ctx context.Context, c *Comm, data []T, op Op, comp compress.Compressor) *Handle {
	return c.startAllReduceCompressed(ctx, numbersOf(data), bytesOf(data), op, comp)
}

// startAllReduceCompressed is StartAllReduceCompressed of a vector in memory of the host.
func (c *Comm) startAllReduceCompressed(ctx context.Context, e elements, data []byte, op Op, comp compress.Compressor) *Handle {
	release, err := c.hold(collective.CompressedName, data)
	if err != nil {
		return ended(opError(collective.CompressedName, err))
	}
	begun := false
	defer func() {
		if !begun { // also if comp has panicked
			release()
		}
	}()
	t, err := compressedTask(ctx, c, e, data, op, comp)
	if err != nil {
		return ended(err)
	}
	gather := c.start(ctx, &t.task)
	begun = true
	return c.follow(func(h *Handle) error {
		defer release()
		defer t.free()
		defer func() {
			if v := recover(); v != nil {
				h.guard = callback.Of(callback.New(collective.CompressedName, v))
			}
		}()
		if err := gather.Wait(); err != nil {
			return err
		}
		h.err = opError(collective.CompressedName, &CompressError{Rank: c.impl.Rank, Err: errGoexit}) // unless this returns
		return finish(t, data, op)
	})
}

// errGoexit is the error of a call if the compressor does not return.
var errGoexit = errors.New("its compressor has ended the goroutine")

// A compressed is a task that gathers encodings.
type compressed struct {
	task
	comm    *Comm
	comp    compress.Compressor
	typed   compress.TypedCompressor // nil if vectors are float32 for comp
	element kernel.Type              // of the vector
	values  []float32                // unless typed: the vector, and then the result
	result  []byte                   // if typed
	decoded []byte                   // if typed, unless the operation is a sum: the vector of a rank
	own     []byte                   // encoding of this rank
	all     []byte                   // encodings of all ranks
	counts  []int                    // their lengths
	sum     bool                     // the operation is Sum or Avg
	kind    string                   // of the compressor, or empty

	buffers []*bufpool.Buffer
}

func (t *compressed) get(n int) []byte {
	b := t.comm.node.factory.Pool.Get(n)
	t.buffers = append(t.buffers, b)
	return b.B[:n:n]
}

func (t *compressed) free() {
	for _, b := range t.buffers {
		t.comm.node.factory.Pool.Put(b)
	}
	t.buffers = nil
}

// compressedTask compresses data, and has all ranks tell each other of their
// encodings. Its error has the name of the call.
func compressedTask(ctx context.Context, c *Comm, e elements, data []byte, op Op, comp compress.Compressor) (t *compressed, err error) {
	t = &compressed{comm: c, comp: comp}
	ready := false
	defer func() {
		if !ready {
			t.free()
		}
	}()
	if comp == nil {
		return t, opError(collective.CompressedName, fmt.Errorf("%w: the compressor is nil", ErrInvalidOp))
	}
	if err = t.choose(e, op); err != nil {
		return t, opError(collective.CompressedName, err)
	}
	own := collective.Notice{Elements: e.N, Type: uint8(t.element), Op: uint8(op)}
	own.Room, err = encode(t, e.N, data)
	copy(own.Kind[:], t.kind)
	own.Bytes, own.Outcome = len(t.own), collective.OutcomeOf(err)
	t.counts, err = c.notify(ctx, own, err)
	if err != nil {
		return t, err
	}
	t.all = t.get(collective.Sum(t.counts))
	err = t.OnBlocksV(&c.runner, plan.AllGather, elementsOf(t.all), elementsOf(t.own), t.counts, 0, 0).Err
	t.Op = collective.CompressedOp
	ready = err == nil
	return t, opError(collective.CompressedName, err)
}

// choose decides whether the compressor gets vectors of their own type, or of float32.
func (t *compressed) choose(data elements, op Op) error {
	if err := data.Err(); err != nil {
		return err
	}
	t.element = kernel.Type(data.Of.Type)
	combine := op
	if op == Avg {
		combine = Sum
	}
	typed, ok := t.comp.(compress.TypedCompressor)
	t.sum = combine == Sum
	isSum := t.sum && t.element.Float()
	if ok && (!isSum || t.element == kernel.Float64) && typed.Allows(t.element, device.Op(combine)) && kernel.Reducer(t.element, kernel.Op(op)) != nil {
		t.typed = typed
		return nil
	}
	if !isSum {
		return fmt.Errorf("%w: %v of %v is not allowed by the compressor %v: want %v or %v of floating-point numbers, or a compress.TypedCompressor that allows it",
			ErrInvalidOp, op, t.element, compressorName(t.comp), Sum, Avg)
	}
	return nil
}

// compressorName describes a compressor in errors.
func compressorName(comp compress.Compressor) string {
	if s, ok := comp.(fmt.Stringer); ok && s.String() != "" {
		return s.String()
	}
	return fmt.Sprintf("%T", comp)
}

// encode compresses the n elements of data, and returns the maximum length of the encoding. An
// error may be a panic.
func encode(t *compressed, n int, data []byte) (room int, err error) {
	returned := false
	defer func() {
		switch v := recover(); {
		case v != nil:
			err = callback.New(collective.CompressedName, v)
		case !returned:
			t.comm.comm.Cancel(errGoexit)
		}
	}()
	if s, ok := t.comp.(fmt.Stringer); ok {
		t.kind = s.String()
	}
	if t.typed != nil {
		room = t.typed.MaxTypedBytes(t.element, n)
	} else {
		room = t.comp.MaxBytes(n)
	}
	if room < 0 {
		err = fmt.Errorf("%w: MaxBytes of %d elements is %d", ErrTooLarge, n, room)
	} else if err = t.comm.fitsAll(room); err != nil {
	} else if t.typed != nil {
		t.result = t.get(len(data))
		if !t.sum {
			t.decoded = t.get(len(data))
		}
		t.own, err = t.typed.AppendTyped(t.get(room)[:0], t.element, data)
	} else {
		t.values = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.get(4*n)))), n)
		kernel.ToFloats(t.values, t.element, data)
		t.own, err = t.comp.Append(t.get(room)[:0], t.values)
	}
	returned = true
	return room, err
}

// fitsAll returns an error if the encodings of all ranks, of at most room bytes each, exceed the limit.
func (c *Comm) fitsAll(room int) error {
	if n, limit := c.Size(), cmp.Or(max(0, c.node.config.CompressedMaxBytes), collective.CountMax-1); room > limit/n {
		return fmt.Errorf("%w: %d encodings of up to %d bytes, for a limit of %d bytes in all (%s)",
			ErrTooLarge, n, room, limit, variable("CompressedMaxBytes"))
	}
	return nil
}

// finishTyped combines the vectors of all encodings.
func (t *compressed) finishTyped(data []byte, op Op) error {
	reduce, all := kernel.Reducer(t.element, kernel.Op(op)), t.all
	for r, n := range t.counts {
		var err error
		switch encoding := all[:n:n]; {
		case r == 0:
			err = t.typed.DecodeTyped(t.result, t.element, encoding)
		case t.sum:
			err = t.typed.AddTyped(t.result, t.element, encoding)
		default:
			if err = t.typed.DecodeTyped(t.decoded, t.element, encoding); err == nil {
				reduce(t.result, t.result, t.decoded)
			}
		}
		if err != nil {
			return opError(collective.CompressedName, &CompressError{Rank: r, Err: err})
		}
		all = all[n:]
	}
	if op == Avg {
		kernel.Divider(t.element)(t.result, t.comm.Size())
	}
	copy(data, t.result)
	return nil
}

// finish combines all encodings, with the same bits on every rank.
func finish(t *compressed, data []byte, op Op) error {
	if t.typed != nil {
		return t.finishTyped(data, op)
	}
	clear(t.values)
	all := t.all
	for r, n := range t.counts {
		if err := t.comp.AddTo(t.values, all[:n:n]); err != nil {
			return opError(collective.CompressedName, &CompressError{Rank: r, Err: err})
		}
		all = all[n:]
	}
	if op == Avg {
		for i := range t.values {
			t.values[i] /= float32(t.comm.Size())
		}
	}
	kernel.FromFloats(data, t.element, t.values)
	return nil
}

// notify exchanges notices. It returns the lengths of the encodings of all ranks, or
// an error that names a rank without a valid one. It continues the panic of a
// compressor here after the other ranks have been told.
func (c *Comm) notify(ctx context.Context, own collective.Notice, bad error) (counts []int, err error) {
	all := make([]collective.Notice, c.Size())
	t := new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(all), elementsOf([]collective.Notice{own}), 0, 0)
	t.Op = collective.CompressedOp
	err = c.run(ctx, t)
	if own.Outcome == collective.Panicked {
		panic(bad)
	}
	for r := 0; r < len(all) && err == nil; r++ {
		why := all[r].Refused(&all[0])
		if r == c.impl.Rank {
			why = cmp.Or(bad, why)
		} else if why == nil {
			if why = c.fitsAll(all[r].Room); why != nil {
				c.comm.Cancel(why) // That rank has seen no limit, and others may wait.
			}
		}
		if why != nil {
			err = opError(collective.CompressedName, &CompressError{Rank: r, Err: why})
		}
		counts = append(counts, all[r].Bytes)
	}
	return counts, err
}
