// Package bucket packs many short vectors into few long ones, so that an operation
// such as an all-reduce has its latency only once for each bucket.
//
// Most callers make a Packer, call AddAll with all vectors, and Wait. A Packer does not
// copy long vectors. It copies short ones to a bucket, and back when the operation on
// the bucket has succeeded.
package bucket

import (
	"slices"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
)

// Most limits the buckets in progress, and thereby their memory: the next one waits for
// the first of them.
const Most = 8

// A Waiter is an operation in progress.
type Waiter interface {
	// Wait waits for its end, and may be called once it has ended as well.
	Wait() error
}

// A Packer puts vectors into buckets. T has no pointers.
type Packer[T any] struct {
	Room int           // elements of a bucket
	Pool *bufpool.Pool // lends its memory
	// Begin starts the operation on a vector with a number, from 0. Errors come from
	// Wait.
	Begin func(number int, v []T) Waiter
	// Blocks says that the caller waits for all operations. Then Most limits vectors that are not
	// copied as well, which saves memory.
	Blocks bool
	// ReadOnly says that the operation does not change the vectors, which are then not written,
	// and WriteOnly that it does not read them.
	ReadOnly, WriteOnly bool

	started []bucket[T]
	held    int   // number of bounded buckets in started
	begun   int   // number of buckets begun, including those that have ended
	err     error // of the first bucket that has failed
}

// A bucket is a group of vectors that one operation works on.
type bucket[T any] struct {
	vectors [][]T
	size    int             // of the copy, in elements
	buffer  *bufpool.Buffer // of the copy; nil for a vector that is not copied
	begun   Waiter
}

// AddAll starts the operation on the buckets of all vectors, as Split makes them.
func (p *Packer[T]) AddAll(vectors [][]T) {
	lengths := make([]int, len(vectors))
	for i, v := range vectors {
		lengths[i] = len(v)
	}
	for _, list := range Split(lengths, p.Room) {
		var b bucket[T]
		for _, i := range list {
			b.vectors = append(b.vectors, vectors[i])
			b.size += lengths[i]
		}
		switch {
		case b.size == 0:
			p.begin(b, nil)
		case len(list) == 1 && isLong(b.size, p.Room):
			b.size = 0
			p.admit(b)
			p.begin(b, b.vectors[0])
		default:
			p.pack(b)
		}
	}
}

// pack copies the vectors of a bucket, and begins it.
func (p *Packer[T]) pack(b bucket[T]) {
	p.admit(b)
	b.buffer = p.Pool.Get(b.size * int(unsafe.Sizeof(*new(T))))
	packed := b.packed()
	for i := 0; !p.WriteOnly && i < len(b.vectors); i++ {
		packed = packed[copy(packed, b.vectors[i]):]
	}
	p.begin(b, b.packed())
}

// bounded reports whether a bucket counts towards Most.
func (p *Packer[T]) bounded(b bucket[T]) bool { return b.size > 0 || p.Blocks }

// admit waits until one more bucket may be in progress. Operations start in the order
// of the calls, so a bucket cannot be deferred.
func (p *Packer[T]) admit(b bucket[T]) {
	if !p.bounded(b) {
		return
	}
	if p.held < Most {
		p.held++
		return
	}
	i := slices.IndexFunc(p.started, p.bounded)
	p.finish(p.started[i])
	p.started = slices.Delete(p.started, i, i+1)
}

// begin starts the operation on v, the vector of a bucket.
func (p *Packer[T]) begin(b bucket[T], v []T) {
	b.begun = p.Begin(p.begun, v)
	p.begun++
	p.started = append(p.started, b)
}

// packed returns the copy of all vectors of a bucket.
func (b *bucket[T]) packed() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.buffer.B))), b.size)
}

// Wait waits for all buckets, also after an error, and returns the first error.
func (p *Packer[T]) Wait() error {
	for _, b := range p.started {
		p.finish(b)
	}
	return p.err
}

// finish waits for a bucket and unpacks it.
func (p *Packer[T]) finish(b bucket[T]) {
	if err := b.begun.Wait(); p.err == nil {
		p.err = err
	}
	if b.buffer == nil {
		return
	}
	if p.err == nil && !p.ReadOnly {
		packed := b.packed()
		for _, v := range b.vectors {
			packed = packed[copy(v, packed):]
		}
	}
	p.Pool.Put(b.buffer)
}
