// Package objects exchanges Go values of any type over a communicator: maps, strings, structs with pointers. The sender of a
// value, an object, encodes it, and its receivers decode it:
//
//	all, err := objects.AllGather(ctx, comm, map[string]int{"errors": 3})
//
// Vectors of numbers and of structs without pointers are faster by the functions of package nexar, which do not encode them.
//
// # Codecs
//
// Objects are encoded as JSON. A [Format] can have another codec, the same as a [nexar.Func]:
//
//	var reports = objects.Format[Report]{Codec: nexar.Gob{}}
//
//	all, err := reports.AllGather(ctx, comm, report)
//
// Every rank gets the object that its codec decodes into a zero T, the sender too. So all ranks get the same, and no result shares memory
// with an argument. JSON loses unexported fields.
//
// Package encoding/gob is not hardened against hostile bytes: a few of them can take much memory and time. With [nexar.Gob], each rank must
// trust all others.
//
// # Limits
//
// The encoded objects that a rank sends, or receives, in one call have at most Format.MaxBytes together. The ranks compare the lengths
// before any of them allocates memory for the objects. Decoded objects may take several times as much memory.
//
// # Collectives
//
// As in package nexar, all ranks call the same collectives in the same order, with the same T and codec. If a call is cancelled or a rank
// fails, the communicator is revoked; no message and no goroutine is left. After these errors it can still be used, and no rank waits for
// another:
//
//   - [EncodeError]: all ranks get the same. If a codec panics, so does the call, and the other ranks get an EncodeError.
//   - [ErrMismatch]: all ranks get the same, with the calls of two ranks. An AllToAll beside another collective is a [nexar.MismatchError],
//     which revokes the communicator.
//   - [nexar.ErrTooLarge]: all ranks get the same.
//   - [DecodeError]: the ranks that decode the object get it, and no object of the call. After Broadcast and AllGather these are all
//     ranks. After the others, ranks that decode other objects have succeeded.
//
// A collective takes one exchange of a few numbers more than that of package nexar with known lengths. Scatter and AllToAll take two.
//
// # Messages
//
// Send and Recv use the tags of package nexar. A message of one package is an error for a receive of the other, so do not receive messages of
// both with [nexar.AnyTag] on one communicator.
package objects

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/nexar-go/nexar"
)

// DefaultMaxBytes is the limit of a [Format] without MaxBytes.
const DefaultMaxBytes = 1 << 30

// A Format says how objects of type T are encoded. The zero value encodes them as JSON.
type Format[T any] struct {
	Codec nexar.Codec // nexar.JSON if nil; of the same type on all ranks
	// MaxBytes limits the encoded objects that a rank sends, or receives, in one call, all together; DefaultMaxBytes if 0 or less. If it
	// differs between the ranks of a collective, the least holds.
	MaxBytes int
}

// Broadcast returns v of root on all ranks. Other ranks' v is ignored.
func Broadcast[T any](ctx context.Context, c *nexar.Comm, v T, root int) (T, error) {
	return Format[T]{}.Broadcast(ctx, c, v, root)
}

// Gather returns v of all ranks on root, indexed by rank, and nil on other ranks.
func Gather[T any](ctx context.Context, c *nexar.Comm, v T, root int) ([]T, error) {
	return Format[T]{}.Gather(ctx, c, v, root)
}

// AllGather returns v of all ranks, indexed by rank, on every rank.
func AllGather[T any](ctx context.Context, c *nexar.Comm, v T) ([]T, error) {
	return Format[T]{}.AllGather(ctx, c, v)
}

// Scatter returns vs[r] of root on rank r. On root vs has one object for each rank; on other ranks it is ignored.
func Scatter[T any](ctx context.Context, c *nexar.Comm, vs []T, root int) (T, error) {
	return Format[T]{}.Scatter(ctx, c, vs, root)
}

// AllToAll sends vs[r] to rank r, for each r, and returns the objects that the ranks have sent to this one, indexed by rank. vs has
// one object for each rank.
func AllToAll[T any](ctx context.Context, c *nexar.Comm, vs []T) ([]T, error) {
	return Format[T]{}.AllToAll(ctx, c, vs)
}

// Send sends v to rank to with a tag, as [nexar.Send] does. If v cannot be encoded, or is too large, Send returns an [EncodeError], and so does the
// Recv for v.
func Send[T any](ctx context.Context, c *nexar.Comm, v T, to int, tag nexar.Tag) error {
	return Format[T]{}.Send(ctx, c, v, to, tag)
}

// Recv receives an object with a tag from rank from, as [nexar.RecvAlloc] does; from may be [nexar.AnyRank], and tag [nexar.AnyTag]. From
// [nexar.NoRank] it returns a zero T. Status.Count is the length of the encoded object in bytes.
//
// A message is lost if it is no object, has another type or codec, is too large, or cannot be decoded. Then the error is a [DecodeError] with the
// rank of the sender, and the communicator can still be used.
//
// If ctx ends before a message has arrived, no message is lost. While it arrives, it may be lost, and the communicator revoked, as by [nexar.Recv].
func Recv[T any](ctx context.Context, c *nexar.Comm, from int, tag nexar.Tag) (T, nexar.Status, error) {
	return Format[T]{}.Recv(ctx, c, from, tag)
}

// Broadcast is the function [Broadcast] with this format.
func (f Format[T]) Broadcast(ctx context.Context, c *nexar.Comm, v T, root int) (T, error) {
	k := f.call(c, "broadcast", root)
	b, err := k.broadcast(ctx, func() ([][]byte, error) { return f.encode(v) })
	if err != nil {
		return *new(T), err
	}
	return f.decode(k, root, b)
}

// Gather is the function [Gather] with this format.
func (f Format[T]) Gather(ctx context.Context, c *nexar.Comm, v T, root int) ([]T, error) {
	k := f.call(c, "gather", root)
	blocks, err := k.gather(ctx, func() ([][]byte, error) { return f.encode(v) })
	return f.decodeAll(k, blocks, err)
}

// AllGather is the function [AllGather] with this format.
func (f Format[T]) AllGather(ctx context.Context, c *nexar.Comm, v T) ([]T, error) {
	k := f.call(c, "all_gather", 0)
	blocks, err := k.gather(ctx, func() ([][]byte, error) { return f.encode(v) })
	return f.decodeAll(k, blocks, err)
}

// Scatter is the function [Scatter] with this format.
func (f Format[T]) Scatter(ctx context.Context, c *nexar.Comm, vs []T, root int) (T, error) {
	k := f.call(c, "scatter", root)
	b, err := k.scatter(ctx, func() ([][]byte, error) { return f.encodeAll(k, vs) })
	if err != nil {
		return *new(T), err
	}
	return f.decode(k, root, b)
}

// AllToAll is the function [AllToAll] with this format.
func (f Format[T]) AllToAll(ctx context.Context, c *nexar.Comm, vs []T) ([]T, error) {
	k := f.call(c, "all_to_all", 0)
	blocks, err := k.allToAll(ctx, func() ([][]byte, error) { return f.encodeAll(k, vs) })
	return f.decodeAll(k, blocks, err)
}

// call describes an operation of this rank.
func (f Format[T]) call(c *nexar.Comm, op string, root int) *call {
	k := &call{comm: c, op: op, root: root, limit: f.MaxBytes, typ: reflect.TypeFor[T]().String()}
	if k.limit <= 0 {
		k.limit = DefaultMaxBytes
	}
	k.format = fmt.Sprintf("%s by %T", k.typ, f.codec())
	return k
}

func (f Format[T]) codec() nexar.Codec { return cmp.Or[nexar.Codec](f.Codec, nexar.JSON{}) }

// encode encodes objects.
func (f Format[T]) encode(vs ...T) (encoded [][]byte, err error) {
	encoded = make([][]byte, len(vs))
	for i := 0; err == nil && i < len(vs); i++ {
		encoded[i], err = f.codec().Marshal(&vs[i])
	}
	return encoded, err
}

// encodeAll encodes one object for each rank.
func (f Format[T]) encodeAll(k *call, vs []T) ([][]byte, error) {
	if n := k.comm.Size(); len(vs) != n {
		return nil, fmt.Errorf("%w: %d objects for %d ranks", nexar.ErrInvalidLength, len(vs), n)
	}
	return f.encode(vs...)
}

// decode decodes an object of a rank. A panic of the codec is an error, since bytes of another rank may be its cause.
func (f Format[T]) decode(k *call, from int, b []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("its codec has panicked: %v", p)
		}
		if err != nil {
			v, err = *new(T), k.decodeError(from, err)
		}
	}()
	err = f.codec().Unmarshal(b, &v)
	return v, err
}

// decodeAll decodes the objects of all ranks, unless blocks is nil.
func (f Format[T]) decodeAll(k *call, blocks [][]byte, err error) ([]T, error) {
	if err != nil || blocks == nil {
		return nil, err
	}
	vs := make([]T, len(blocks))
	for r, b := range blocks {
		if vs[r], err = f.decode(k, r, b); err != nil {
			return nil, err
		}
	}
	return vs, nil
}
