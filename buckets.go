package nexar

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bucket"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/overlap"
)

// AllReduceBuckets is AllReduce for many vectors, such as the gradients of all layers
// of a network. All ranks pass the same number of vectors, with the same lengths in
// the same order. Short vectors are packed into buckets of Config.BucketBytes, so that
// they take little longer than one vector of their total length; long ones are reduced
// in place. A bucket is packed while others are being reduced. Packing changes the
// bits of an element only as its place in a vector does; with Config.Deterministic it
// does not.
//
// Vectors that share memory are an ErrOverlap. After an error in one of the buckets
// some vectors may have been reduced; the content of the others is undefined.
func AllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) error {
	return startBuckets(ctx, c, vectors, op, true).Wait()
}

// StartAllReduceBuckets starts an AllReduceBuckets; see Handle. It returns when the
// last bucket has been packed and started, so that its place among other collectives
// is fixed. If the short vectors fill at most eight buckets, it waits for no other
// rank. Before each further bucket it waits until an earlier one has been reduced,
// which bounds its memory: the other ranks must then reach this call without waiting
// for later operations of this one. Long vectors, which are reduced in place, do not
// count.
func StartAllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) *Handle {
	return startBuckets(ctx, c, vectors, op, false)
}

// startBuckets starts an AllReduceBuckets. blocks says that the caller waits for it.
func startBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op, blocks bool) *Handle {
	lengths := make([]int, len(vectors))
	for i, v := range vectors {
		lengths[i] = len(v)
		if err := new(task).allReduce(c, numbersOf(v), op).err; err != nil {
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
	// Each bucket has the lengths of all vectors and its number in its fingerprint, as
	// buckets of the same length may have different vectors.
	digest := engine.Digest(lengths)
	p := bucket.Packer[T]{Room: max(1, c.node.bucketBytes/int(unsafe.Sizeof(*new(T)))), Pool: c.node.factory.Pool, Blocks: blocks}
	p.Begin = func(number int, v []T) bucket.Waiter {
		t := new(task).allReduce(c, numbersOf(v), op)
		t.label, t.Digest = bucketsName, digest+uint32(number)
		begun, err := c.begin(ctx, t) // The memory of all vectors has been registered at once.
		if err != nil {
			return ended(err)
		}
		return c.follow(func(*Handle) error { return c.end(ctx, t, begun) })
	}
	p.AddAll(vectors)
	return c.follow(func(*Handle) error {
		defer c.flights.Leave(id)
		return p.Wait()
	})
}

// bucketsName is the name of AllReduceBuckets in errors.
const bucketsName = "all_reduce_buckets"

// bucketsFlight is the memory of all vectors, which must not overlap. It is
// registered as a whole, before the first bucket: no bucket is started if another
// operation uses some of it.
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
