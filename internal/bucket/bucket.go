// Package bucket packs many short vectors into few long ones, on which something is
// done that has its price for each: most likely they are reduced.
//
// Most callers make a Packer, call AddAll with all vectors, and Wait. A vector that is
// long already is no longer copied; the others are, and back again when what was begun
// on them has ended well.
package bucket

import (
	"slices"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
)

// Most is how many buckets are under way before the next one waits for the first of
// them, which bounds how much memory they take.
const Most = 8

// A Waiter is what was begun.
type Waiter interface {
	// Wait waits for its end, and may be called once it has ended as well.
	Wait() error
}

// A Packer puts vectors into buckets. T has no pointers.
type Packer[T any] struct {
	Room int           // elements of a bucket
	Pool *bufpool.Pool // lends its memory
	// Begin begins what is to be done on a vector, the number of which counts from 0.
	// It does not fail but in Wait.
	Begin func(number int, v []T) Waiter
	// Blocks says that the caller waits for the end in any case, and so may wait here
	// for vectors that stay where they lie, too: those need less memory.
	Blocks bool

	open    bucket[T]
	started []bucket[T]
	held    int   // how many of them are bounded
	begun   int   // how many there were, of which some may have ended
	err     error // of the first bucket that has failed
}

// A bucket is vectors that are one.
type bucket[T any] struct {
	vectors [][]T
	size    int             // of the copy, in elements
	buffer  *bufpool.Buffer // of the copy; nil if a vector stays where it lies
	begun   Waiter
}

// AddAll begins what is to be done on all vectors; on an empty one if they are.
func (p *Packer[T]) AddAll(vectors [][]T) {
	for _, v := range vectors {
		p.add(v)
	}
	p.flush()
	if p.begun == 0 {
		p.begin(bucket[T]{}, nil)
	}
}

// add adds a vector, to a bucket of its own if copying it would not pay.
func (p *Packer[T]) add(v []T) {
	switch {
	case len(v) == 0:
		return
	case 2*len(v) > p.Room:
		b := bucket[T]{vectors: [][]T{v}}
		p.admit(b)
		p.begin(b, v)
		return
	case p.open.size+len(v) > p.Room:
		p.flush()
	}
	p.open.vectors = append(p.open.vectors, v)
	p.open.size += len(v)
}

// flush begins the bucket that is open.
func (p *Packer[T]) flush() {
	b := p.open
	p.open = bucket[T]{}
	if b.size == 0 {
		return
	}
	p.admit(b)
	b.buffer = p.Pool.Get(b.size * int(unsafe.Sizeof(*new(T))))
	packed := b.packed()
	for _, v := range b.vectors {
		packed = packed[copy(packed, v):]
	}
	p.begin(b, b.packed())
}

// bounded reports whether a bucket is one of those of which there are only so many.
func (p *Packer[T]) bounded(b bucket[T]) bool { return b.size > 0 || p.Blocks }

// admit waits until there is room for one more bucket under way. What begins
// begins in the order of the calls, so that this cannot be put off.
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

// begin begins what is to be done on v, the vector of a bucket.
func (p *Packer[T]) begin(b bucket[T], v []T) {
	b.begun = p.Begin(p.begun, v)
	p.begun++
	p.started = append(p.started, b)
}

// packed is the copy of all vectors of a bucket.
func (b *bucket[T]) packed() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.buffer.B))), b.size)
}

// Wait waits for all buckets, after an error for the rest all the same.
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
	if p.err == nil {
		packed := b.packed()
		for _, v := range b.vectors {
			packed = packed[copy(v, packed):]
		}
	}
	p.Pool.Put(b.buffer)
}
