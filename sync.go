package nexar

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/kernel"
)

// Sync hands the state of rank 0 to all other ranks, whatever they have. After a
// change of the world, which Epochs tells of, rank 0 is one that was in it before:
// so those that have joined, and those that a failure has caught at another step,
// go on where it is.
//
// State is of the same type on all ranks, and one of these:
//
//   - a slice of numbers, or of structs without pointers, of the same length
//     everywhere;
//   - a pointer to such a slice, which gets the length that it has on rank 0;
//   - a pointer to a number, or to an array or struct without pointers;
//   - an encoding.BinaryMarshaler that is an encoding.BinaryUnmarshaler as well.
//
// All ranks call Sync as they call a collective. If it fails, state may have been
// changed on some of them.
func Sync(ctx context.Context, c *Comm, state any) error {
	if s, ok := state.(marshaler); ok {
		return c.syncMarshaled(ctx, s)
	}
	r, ok := kernel.RegionOf(state)
	switch {
	case !ok:
		return opError(syncName, fmt.Errorf("%w: %T is not a slice of elements without pointers, a pointer to one or to an element, nor a binary marshaler and unmarshaler",
			ErrInvalidType, state))
	case r.Grows():
		return c.syncSlice(ctx, r)
	}
	return c.sync(ctx, r.Bytes())
}

// syncName is the name of Sync in what other ranks say of it.
const syncName = "sync"

// A marshaler is a state that makes bytes of itself.
type marshaler interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// sync hands memory of the same size over.
func (c *Comm) sync(ctx context.Context, mem []byte) error {
	t, err := broadcastTask(c, elements{mem: mem, n: len(mem), typ: opaque, size: 1}, 0)
	t.label = syncName
	return c.run(ctx, t, err)
}

// syncSlice hands over a slice of any length.
func (c *Comm) syncSlice(ctx context.Context, r kernel.Region) error {
	n := []uint64{uint64(r.Len())}
	if err := c.sync(ctx, bytesOf(n)); err != nil {
		return err
	}
	r.SetLen(int(n[0]))
	return c.sync(ctx, r.Bytes())
}

// syncMarshaled hands over what a state makes of itself. That it makes nothing is
// told to all.
func (c *Comm) syncMarshaled(ctx context.Context, state marshaler) (err error) {
	var b []byte
	var bad error
	failed := []uint8{0}
	if c.rank == 0 {
		if b, bad = state.MarshalBinary(); bad != nil {
			failed[0] = 1
		}
	}
	if err := c.sync(ctx, failed); err != nil {
		return err
	}
	if failed[0] != 0 {
		return opError(syncName, cmp.Or(bad, errors.New("rank 0 could not marshal its state")))
	}
	r, _ := kernel.RegionOf(&b)
	if err := c.syncSlice(ctx, r); err != nil || c.rank == 0 {
		return err
	}
	return opError(syncName, state.UnmarshalBinary(b))
}
