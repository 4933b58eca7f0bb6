package nexar

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/overlap"
)

// AllReduceBuckets is AllReduce for many vectors, such as the gradients of all
// layers of a network: all ranks give as many, of the same lengths in the same
// order. Short ones are packed into buckets of Config.BucketBytes, so that
// reducing them takes little longer than a single vector as long as all of them
// together; long ones are reduced where they lie. The next bucket is packed
// while others are under way. Whether an element is reduced alone or in a
// bucket changes its bits only as its place in a vector would; with
// Config.Deterministic not at all.
//
// Vectors that share memory are an ErrOverlap. After an error in one of the
// buckets some vectors may have been reduced; the others hold neither.
func AllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) error {
	return startBuckets(ctx, c, vectors, op, true).Wait()
}

// StartAllReduceBuckets begins an AllReduceBuckets; see Handle. It returns when
// the last bucket is packed and under way, so that its place among other
// collectives is fixed. Where the short vectors fill no more than eight buckets,
// it waits for no other rank. From the ninth on it waits until the first has been
// reduced, as they would take ever more memory otherwise: the other ranks have to
// come to their calls of it without waiting for what this one does afterwards.
// Long vectors, which are reduced where they lie, do not count.
func StartAllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) *Handle {
	return startBuckets(ctx, c, vectors, op, false)
}

// startBuckets begins an AllReduceBuckets of a caller that may wait for it.
func startBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op, blocks bool) *Handle {
	lengths := make([]int, len(vectors))
	for i, v := range vectors {
		lengths[i] = len(v)
		if _, err := allReduceTask(c, elementsOf(v), op); err != nil {
			return ended(opError(bucketsName, fmt.Errorf("vector %d: %w", i, err)))
		}
	}
	flight, err := bucketsFlight(vectors)
	if err != nil {
		return ended(opError(bucketsName, err))
	}
	id, err := c.enterFlight(flight)
	if err != nil {
		return ended(opError(bucketsName, err))
	}
	p := packer[T]{
		ctx: ctx, comm: c, op: op, blocks: blocks, digest: engine.Digest(lengths),
		room: max(1, c.home.bucketBytes/int(unsafe.Sizeof(*new(T)))),
	}
	for _, v := range vectors {
		p.add(v)
	}
	p.flush()
	if p.begun == 0 {
		p.begin(bucket[T]{}, nil) // Other ranks may have more.
	}
	return c.follow(func(*Handle) error {
		defer c.flights.Leave(id)
		return p.wait()
	})
}

// bucketsName is the name of AllReduceBuckets in errors.
const bucketsName = "all_reduce_buckets"

// bucketsFlight is the memory of all vectors, of which no two may share any. It is
// one flight, and entered before the first bucket begins: where another operation
// is in the way, none does.
func bucketsFlight[T Number](vectors [][]T) (overlap.Flight, error) {
	list := make([][]byte, len(vectors))
	for i, v := range vectors {
		list[i] = bytesOf(v)
	}
	sorted, apart := overlap.Apart(list)
	if !apart {
		i, j, _ := overlap.First(list)
		return overlap.Flight{}, fmt.Errorf("%w: vectors %d and %d share memory", ErrOverlap, i, j)
	}
	return overlap.Flight{Name: bucketsName, More: sorted}, nil
}

// A packer puts vectors into buckets.
type packer[T Number] struct {
	ctx  context.Context
	comm *Comm
	op   Op
	room int // elements of a bucket
	// blocks says that the caller waits for the end in any case, and so may wait
	// here for vectors that are reduced where they lie, which need less memory.
	blocks bool
	// digest is of the lengths of all vectors. Each bucket has it in its
	// fingerprint, with its number, as what is in buckets of the same length may
	// not be.
	digest uint32

	open    bucket[T]
	started []bucket[T]
	held    int    // how many of them are bounded
	begun   uint32 // how many there were, of which some may have ended
	err     error  // of the first bucket that has failed
}

// A bucket is vectors that are reduced as one.
type bucket[T Number] struct {
	vectors [][]T
	size    int             // of the copy, in elements
	buffer  *bufpool.Buffer // of the copy; nil if a vector is reduced where it lies
	handle  *Handle
}

// add adds a vector, to a bucket of its own if copying it would not pay.
func (p *packer[T]) add(v []T) {
	switch {
	case len(v) == 0:
		return
	case 2*len(v) > p.room:
		b := bucket[T]{vectors: [][]T{v}}
		p.admit(b)
		p.begin(b, v)
		return
	case p.open.size+len(v) > p.room:
		p.flush()
	}
	p.open.vectors = append(p.open.vectors, v)
	p.open.size += len(v)
}

// flush begins to reduce the bucket that is open.
func (p *packer[T]) flush() {
	b := p.open
	p.open = bucket[T]{}
	if b.size == 0 {
		return
	}
	p.admit(b)
	b.buffer = p.comm.home.pool.Get(b.size * int(unsafe.Sizeof(*new(T))))
	packed := b.packed()
	for _, v := range b.vectors {
		packed = packed[copy(packed, v):]
	}
	p.begin(b, b.packed())
}

// bucketsMax is how many buckets are under way before the next one waits for the
// first of them, which bounds how much memory they take.
const bucketsMax = 8

// bounded reports whether a bucket is one of those.
func (p *packer[T]) bounded(b bucket[T]) bool { return b.size > 0 || p.blocks }

// admit waits until there is room for one more bucket under way. What begins
// begins in the order of the calls, so that this cannot be put off.
func (p *packer[T]) admit(b bucket[T]) {
	if !p.bounded(b) {
		return
	}
	if p.held < bucketsMax {
		p.held++
		return
	}
	i := slices.IndexFunc(p.started, p.bounded)
	p.finish(p.started[i])
	p.started = slices.Delete(p.started, i, i+1)
}

// begin begins to reduce v, the vector of a bucket. That its memory is in use has
// been said for all vectors at once.
func (p *packer[T]) begin(b bucket[T], v []T) {
	t, err := allReduceTask(p.comm, elementsOf(v), p.op)
	t.label, t.digest = bucketsName, p.digest+p.begun
	op, err := p.comm.begin(p.ctx, &t, err)
	if err != nil {
		b.handle = ended(err)
	} else {
		b.handle = p.comm.follow(func(*Handle) error { return p.comm.end(p.ctx, &t, op) })
	}
	p.begun++
	p.started = append(p.started, b)
}

// packed is the copy of all vectors of a bucket.
func (b *bucket[T]) packed() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.buffer.B))), b.size)
}

// wait waits for all buckets, after an error for the rest all the same.
func (p *packer[T]) wait() error {
	for _, b := range p.started {
		p.finish(b)
	}
	return p.err
}

// finish waits for a bucket and unpacks it.
func (p *packer[T]) finish(b bucket[T]) {
	if err := b.handle.Wait(); p.err == nil {
		p.err = err
	}
	if b.buffer == nil {
		return
	}
	if p.err == nil {
		packed := b.packed()
		for _, v := range b.vectors {
			packed = packed[copy(v, packed):]
		}
	}
	p.comm.home.pool.Put(b.buffer)
}
