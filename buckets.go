package nexar

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bucket"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
)

// AllReduceBuckets is [AllReduce] of many vectors, such as the gradients of all layers of a
// network. All ranks pass the same number of vectors, with the same lengths in the same order.
// Short vectors are packed into buckets of [Config].BucketBytes, so that they take little longer
// than one vector of their total length; long ones are reduced in place. A bucket is packed
// while others are being reduced. An element of a bucket has the same result as in an
// AllReduce at its position there; with [Config].Deterministic positions do not matter.
//
// Vectors that share memory are an [ErrOverlap]. After an error in one of the buckets some
// vectors may have been reduced; the content of the others is undefined.
func AllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) error {
	return startBuckets(ctx, c, vectors, op, true).Wait()
}

// StartAllReduceBuckets starts an [AllReduceBuckets]; see [Handle]. It returns when all buckets have
// been started. Collectives that the caller starts afterwards come later in the order of collectives.
//
// At most eight buckets are in progress at a time, which bounds the memory. If the short vectors fill
// more, the call blocks until an earlier bucket has been reduced. The other ranks must therefore make
// this call before they wait for any operation that this rank starts after it. Long vectors are reduced
// in place and do not count as buckets.
func StartAllReduceBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op) *Handle {
	return startBuckets(ctx, c, vectors, op, false)
}

// startBuckets starts an AllReduceBuckets. blocks says that the caller waits for it.
func startBuckets[T Number](ctx context.Context, c *Comm, vectors [][]T, op Op, blocks bool) *Handle {
	for i, v := range vectors {
		if err := new(task).OnVector(&c.runner, plan.AllReduce, numbersOf(v), kernel.Op(op), 0).Err; err != nil {
			return ended(opError(collective.BucketsName, fmt.Errorf("vector %d: %w", i, err)))
		}
	}
	sorted, err := apart(vectors)
	if err != nil {
		return ended(opError(collective.BucketsName, err))
	}
	// The memory is registered as a whole before the first bucket: none is started if another
	// operation uses some of it.
	id, err := c.enterFlight(overlap.Flight{Name: collective.BucketsName, More: sorted})
	if err != nil {
		return ended(opError(collective.BucketsName, err))
	}
	p := newPacker(ctx, c, vectors, func(v []T) *task {
		t := new(task).OnVector(&c.runner, plan.AllReduce, numbersOf(v), kernel.Op(op), 0)
		return t
	})
	p.Blocks = blocks
	p.AddAll(vectors)
	return c.follow(func(*Handle) error {
		defer c.flights.Leave(id)
		return p.Wait()
	})
}

// BroadcastBuckets is [Broadcast] of many vectors, such as the weights of all layers of a
// network. All ranks pass the same number of vectors, with the same lengths in the same order.
// Short vectors are packed into buckets of [Config].BucketBytes; long ones are broadcast in
// place. For vectors of several types see [BroadcastValues].
//
// Vectors that share memory are an [ErrOverlap]. After an error the vectors of root are
// unchanged; the content of the others is undefined.
func BroadcastBuckets[T any](ctx context.Context, c *Comm, vectors [][]T, root int) error {
	err := elementsOf[T](nil).Err()
	if err == nil {
		err = c.runner.CheckRoot(root)
	}
	if err == nil {
		_, err = apart(vectors)
	}
	if err != nil {
		return opError(collective.BroadcastBucketsName, err)
	}
	return broadcastBuckets(ctx, c, vectors, root, func(*task) {})
}

// broadcastBuckets broadcasts vectors of the same lengths on all ranks. set completes the task of
// each bucket.
func broadcastBuckets[T any](ctx context.Context, c *Comm, vectors [][]T, root int, set func(*task)) error {
	p := newPacker(ctx, c, vectors, func(v []T) *task {
		t := new(task).OnVector(&c.runner, plan.Broadcast, elementsOf(v), 0, root)
		set(t)
		return t
	})
	p.Blocks, p.ReadOnly, p.WriteOnly = true, c.impl.Rank == root, c.impl.Rank != root
	p.AddAll(vectors)
	return p.Wait()
}

// newPacker returns a Packer that starts the task of each bucket. The fingerprint of a task has the
// lengths of all vectors and the number of the bucket, as buckets of the same length may have
// different vectors.
func newPacker[T any](ctx context.Context, c *Comm, vectors [][]T, taskOf func(v []T) *task) *bucket.Packer[T] {
	lengths := make([]int, len(vectors))
	for i, v := range vectors {
		lengths[i] = len(v)
	}
	digest := engine.Digest(lengths)
	p := &bucket.Packer[T]{Room: max(1, c.node.config.BucketBytes/int(unsafe.Sizeof(*new(T)))), Pool: c.node.factory.Pool}
	p.Begin = func(number int, v []T) bucket.Waiter {
		t := taskOf(v)
		t.Digest = digest + uint32(number)
		begun, err := c.begin(ctx, t)
		if err != nil {
			return ended(err)
		}
		h := new(Handle)
		begun.InBackground(&h.waiters)
		seq := begun.Number()
		return c.background(h, func() error {
			defer c.comm.EndBackground(seq)
			return c.end(ctx, t, begun)
		})
	}
	return p
}

// apart returns the memory of vectors, sorted by Apart. Vectors that share memory are an error.
func apart[T any](vectors [][]T) (sorted [][]byte, err error) {
	list := make([][]byte, len(vectors))
	for i, v := range vectors {
		list[i] = bytesOf(v)
	}
	sorted, ok := overlap.Apart(list)
	if !ok {
		i, j, _ := overlap.First(list)
		return nil, fmt.Errorf("%w: vectors %d and %d share memory", ErrOverlap, i, j)
	}
	return sorted, nil
}
