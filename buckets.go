package nexar

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bucket"
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
		if err := new(task).allReduce(c, elementsOf(v), op).err; err != nil {
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
	// Each bucket has the lengths of all vectors in its fingerprint, with its number, as
	// what is in buckets of the same length may not be.
	digest := engine.Digest(lengths)
	p := bucket.Packer[T]{Room: max(1, c.node.bucketBytes/int(unsafe.Sizeof(*new(T)))), Pool: c.node.factory.Pool, Blocks: blocks}
	p.Begin = func(number int, v []T) bucket.Waiter {
		t := new(task).allReduce(c, elementsOf(v), op)
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
