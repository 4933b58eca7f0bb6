package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/plan"
)

// Float is the element types of vectors that can be compressed.
type Float interface {
	float32 | float64 | Float16 | BFloat16
}

// AllReduceCompressed is AllReduce for vectors that are made shorter on the way,
// at the price of some of what is in them: each rank compresses its vector, all
// get the encodings of all, and add them in the order of the ranks, in float32,
// so that every rank has the same bits. Compressors are in package compress; all
// ranks use alike ones. op is Sum or Avg.
//
// Elements that are not float32 are rounded to it before they are compressed,
// and the result to theirs. On each rank the call takes memory for the
// encodings of all ranks, of Compressor.MaxBytes each, of which there must not
// be more than Config.CompressedMax: otherwise it is an ErrTooLarge before any
// of it is allocated.
//
// A rank whose vector cannot be compressed, or whose encoding is not valid, is a
// CompressError on all ranks; data is then as it was, and the communicator goes
// on. After other errors data is as it was, too.
func AllReduceCompressed[T Float](ctx context.Context, c *Comm, data []T, op Op, comp compress.Compressor) error {
	t, err := compressedTask(ctx, c, data, op, comp)
	if err != nil {
		return err
	}
	defer t.free()
	if err := c.run(ctx, t.task, nil); err != nil {
		return err
	}
	return opError(t.label, t.failed)
}

// StartAllReduceCompressed begins an AllReduceCompressed; see Handle. It returns
// when all ranks have called it and compressed their vectors; comp may then be
// used for another vector, as far as its own documentation says so.
func StartAllReduceCompressed[T Float](ctx context.Context, c *Comm, data []T, op Op, comp compress.Compressor) *Handle {
	t, err := compressedTask(ctx, c, data, op, comp)
	if err != nil {
		return ended(err)
	}
	h := c.start(ctx, t.task, nil)
	return c.follow(func(*Handle) error {
		defer t.free()
		if err := h.Wait(); err != nil {
			return err
		}
		return opError(t.label, t.failed)
	})
}

// A compressed is a task that gathers encodings.
type compressed struct {
	task
	buffers []*bufpool.Buffer
	pool    *bufpool.Pool
	failed  error // of the addition
}

func (t *compressed) get(n int) []byte {
	b := t.pool.Get(n)
	t.buffers = append(t.buffers, b)
	return b.B[:n]
}

func (t *compressed) free() {
	for _, b := range t.buffers {
		t.pool.Put(b)
	}
}

// compressedTask compresses data, and has all ranks tell each other how long the
// encodings are. Its error has the name of the call.
func compressedTask[T Float](ctx context.Context, c *Comm, data []T, op Op, comp compress.Compressor) (t *compressed, err error) {
	const name = "all_reduce_compressed"
	t = &compressed{pool: c.home.pool}
	defer func() {
		if err != nil {
			t.free()
		}
	}()
	switch {
	case comp == nil:
		err = fmt.Errorf("%w: the compressor is nil", ErrInvalidOp)
	case op != Sum && op != Avg:
		err = fmt.Errorf("%w: %v of compressed vectors, which is neither %v nor %v", ErrInvalidOp, op, Sum, Avg)
	default:
		err = c.checkCompressed(comp.MaxBytes(len(data)))
	}
	if err != nil {
		return t, opError(name, err)
	}
	values := t.floats(len(data))
	toFloats(values, data)
	own, bad := comp.Append(t.get(comp.MaxBytes(len(data)))[:0], values)
	counts, err := c.lengths(ctx, name, len(data), len(own), bad)
	if err != nil {
		return t, err
	}
	all := t.get(sum(counts))
	if t.task, err = unevenBlocks(c, plan.AllGather, all, own, counts); err != nil {
		return t, opError(name, err)
	}
	t.label, t.inFirst = name, c.rank
	t.after = func() {
		if t.failed = addAll(values, all, counts, comp); t.failed == nil {
			fromFloats(data, values, op, c.Size())
		}
	}
	return t, nil
}

// checkCompressed compares what the encodings of all ranks take with the limit.
func (c *Comm) checkCompressed(each int) error {
	limit := c.home.compressedMax
	if each < 0 || limit > 0 && each > limit/c.Size() {
		return fmt.Errorf("%w: %d encodings of up to %d bytes, for a limit of %d bytes in all (%s)",
			ErrTooLarge, c.Size(), each, limit, variable("CompressedMax"))
	}
	return nil
}

// lengths are those of the encodings of all ranks, if all have some, of vectors
// of the same length.
func (c *Comm) lengths(ctx context.Context, name string, elements, bytes int, bad error) ([]int, error) {
	const each = 3
	own := []int64{int64(elements), int64(bytes), 0}
	if bad != nil {
		own[2] = 1
	}
	all := make([]int64, each*c.Size())
	t, err := allGatherTask(c, elementsOf(all), elementsOf(own))
	t.label = name
	if err := c.run(ctx, t, err); err != nil {
		return nil, err
	}
	counts := make([]int, c.Size())
	for r := range counts {
		its := all[each*r:][:each]
		switch {
		case its[2] != 0 && r == c.rank:
			return nil, opError(name, &CompressError{Rank: r, Err: bad})
		case its[2] != 0:
			return nil, opError(name, &CompressError{Rank: r, Err: fmt.Errorf("its vector could not be compressed there")})
		case its[0] != all[0]:
			return nil, opError(name, &CompressError{Rank: r, Err: fmt.Errorf("%w: its vector has %d elements, and that of rank 0 has %d", ErrInvalidLength, its[0], all[0])})
		}
		counts[r] = int(its[1])
	}
	return counts, nil
}

// addAll makes the sum of all encodings, the same bits on every rank.
func addAll(sum []float32, all []byte, counts []int, comp compress.Compressor) error {
	clear(sum)
	for r, n := range counts {
		if err := comp.AddTo(sum, all[:n:n]); err != nil {
			return &CompressError{Rank: r, Err: err}
		}
		all = all[n:]
	}
	return nil
}
