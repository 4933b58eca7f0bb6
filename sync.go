package nexar

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// Sync hands the state of a rank to all others, whatever they have: of the first rank
// that has it, which is one of those with which the world has formed, or to which a
// Sync has handed it. So after a change of the world, of which Epochs tells, those that
// have joined, and those that a failure has caught at another step, go on where it is.
//
// State is of the same type on all ranks, and one of these:
//
//   - a slice of numbers, or of structs without pointers, of the same length
//     everywhere;
//   - a pointer to such a slice, which gets the length that it has on rank 0;
//   - a pointer to a number, or to an array or struct without pointers;
//   - an encoding.BinaryMarshaler that is an encoding.BinaryUnmarshaler as well.
//
// All ranks call Sync as they call a collective. If it fails, each rank has either the
// state that it had or the new one, whole, save that of a BinaryUnmarshaler that fails
// half way. For that a rank takes as much memory again as the state has. If no rank
// has the state, because all have gone that had it, the error is ErrNoState: to begin
// anew would undo what the world has done.
func Sync(ctx context.Context, c *Comm, state any) error {
	s, isMarshaler := state.(marshaler)
	r, isRegion := kernel.RegionOf(state)
	if !isMarshaler && !isRegion {
		return opError(syncName, fmt.Errorf("%w: %T is not a slice of elements without pointers, a pointer to one or to an element, nor a binary marshaler and unmarshaler",
			ErrInvalidType, state))
	}
	root, err := c.stateRoot(ctx)
	switch {
	case err != nil:
	case isMarshaler:
		err = c.syncMarshaled(ctx, s, root)
	default:
		err = c.syncRegion(ctx, r, root)
	}
	if err == nil {
		c.node.hasState.Store(true)
	}
	return err
}

// stateRoot is the first rank that has the state.
func (c *Comm) stateRoot(ctx context.Context) (int, error) {
	first := []int64{int64(c.Size())}
	if c.node.hasState.Load() {
		first[0] = int64(c.impl.Rank)
	}
	var t task
	err := errors.Join(t.vector(plan.AllReduce, elementsOf(first)), t.setOp(Min, c.Size()))
	t.label, t.Op = syncName, syncOp
	if err := c.run(ctx, &t, err); err != nil {
		return 0, err
	}
	if int(first[0]) == c.Size() {
		return 0, opError(syncName, ErrNoState)
	}
	return int(first[0]), nil
}

// syncName is the name of Sync in what other ranks say of it.
const syncName = "sync"

// A marshaler is a state that makes bytes of itself.
type marshaler interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// sync hands memory of the same size over.
func (c *Comm) sync(ctx context.Context, mem []byte, root int) error {
	var t task
	err := broadcastTask(&t, c, elements{at: unsafe.SliceData(mem), n: len(mem), of: element{opaque, 1}}, root)
	t.label = syncName
	return c.run(ctx, &t, err)
}

// syncBytes hands bytes over, of which only the root knows how many.
func (c *Comm) syncBytes(ctx context.Context, b []byte, root int) ([]byte, error) {
	n := []uint64{uint64(len(b))}
	if err := c.sync(ctx, bytesOf(n), root); err != nil {
		return nil, err
	}
	if n[0] > math.MaxInt {
		return nil, opError(syncName, fmt.Errorf("%w: %d bytes", ErrTooLarge, n[0]))
	}
	if c.impl.Rank != root {
		b = make([]byte, n[0])
	}
	return b, c.sync(ctx, b, root)
}

// syncRegion hands memory over, and has a rank change its own when all of it has come.
func (c *Comm) syncRegion(ctx context.Context, r kernel.Region, root int) (err error) {
	b := r.Bytes()
	switch {
	case r.Grows():
		b, err = c.syncBytes(ctx, b, root)
	case c.impl.Rank == root:
		err = c.sync(ctx, b, root)
	default:
		b = make([]byte, len(b))
		err = c.sync(ctx, b, root)
	}
	if err != nil || c.impl.Rank == root {
		return err
	}
	return opError(syncName, r.Set(b))
}

// syncMarshaled hands over what a state makes of itself. That it makes nothing is
// told to all.
func (c *Comm) syncMarshaled(ctx context.Context, state marshaler, root int) (err error) {
	var b []byte
	var bad error
	failed := []uint8{0}
	if c.impl.Rank == root {
		if b, bad = state.MarshalBinary(); bad != nil {
			failed[0] = 1
		}
	}
	if err := c.sync(ctx, failed, root); err != nil {
		return err
	}
	if failed[0] != 0 {
		return opError(syncName, cmp.Or(bad, fmt.Errorf("rank %d could not marshal its state", root)))
	}
	if b, err = c.syncBytes(ctx, b, root); err != nil || c.impl.Rank == root {
		return err
	}
	return opError(syncName, state.UnmarshalBinary(b))
}
