// Package staging copies operands of calls from buffers of a device to memory of the
// host, and results back.
//
// Most callers make an Operand for the input of a call and one for its result:
//
//	src, err := staging.New(stream, regions)
//	…
//	defer src.Free()
//	src.Read = true
//	err = staging.Load(ctx, dst, src)
//	…                                // the call, from src.Memory to dst.Memory
//	err = dst.Store(ctx, dst.Len())
//
// The memory is that of the device itself where the host reaches it (a
// device.Mapper) and the regions are contiguous; otherwise it is staging memory,
// as long as the regions are, which the device fills and empties in the order of
// the stream. An Operand that is a block of another one can share its staging
// memory. Nothing but the methods of the device touches buffers.
//
// # Failure
//
// Errors are those of the device; Misused recognizes those that are due to the
// arguments. Load checks all regions, also those that it does not read, so that Store
// fails only for later reasons. After an error, and when the context has ended, call
// Free only: queued work is done in any case, and the memory is reused after it.
//
// # Concurrency
//
// An Operand is used by one goroutine at a time.
package staging

import (
	"context"
	"errors"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// An Operand is regions of the device of a stream, one after the other.
type Operand struct {
	Read bool // Load copies the content of the regions

	stream  device.Stream
	regions []device.Region
	bytes   int

	pieces  [][]byte       // the memory, once it is loaded
	staging device.Staging // nil if the memory is the device's own
	at      int            // the byte of staging at which this Operand begins
	whole   *Operand       // the owner of staging, if that is another Operand
}

// New makes an Operand of regions, which must not be changed before its last
// use. The error is that of device.Check; then the Operand has no bytes.
func New(s device.Stream, regions []device.Region) (*Operand, error) {
	bytes, err := device.Check(s.Device(), regions...)
	if err != nil {
		return &Operand{stream: s}, err
	}
	return &Operand{stream: s, regions: regions, bytes: bytes}, nil
}

// Len is how many bytes there are.
func (o *Operand) Len() int { return o.bytes }

// Within lets o be staged as the block of whole that begins at byte at. It has
// no effect where one of them needs no staging memory. Load gets whole before o.
func (o *Operand) Within(whole *Operand, at int) { o.whole, o.at = whole, at }

// Clashes reports whether two regions of operands share memory. One of either
// that is Within the other may be in the very place that this means.
func (o *Operand) Clashes(other *Operand) bool {
	for _, r := range o.regions {
		if slices.ContainsFunc(other.regions, r.Overlaps) {
			return !o.isBlockOf(other) && !other.isBlockOf(o)
		}
	}
	return false
}

func (o *Operand) isBlockOf(whole *Operand) bool {
	return o.whole == whole && slices.Equal(cut(whole.regions, o.at, o.bytes), cut(o.regions, 0, o.bytes))
}

// Tangled reports whether any two of its own regions share memory.
func (o *Operand) Tangled() bool {
	for i, r := range o.regions {
		if slices.ContainsFunc(o.regions[:i], r.Overlaps) {
			return true
		}
	}
	return false
}

// Load gets memory for operands of one stream, copies the input to it, and waits until
// the host may use it.
func Load(ctx context.Context, operands ...*Operand) error {
	for _, step := range []func(*Operand, context.Context) error{(*Operand).place, (*Operand).fetch, (*Operand).await} {
		for _, o := range operands {
			if o.bytes == 0 {
				continue
			}
			if err := step(o, ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// place finds the memory of the device itself, or gets staging memory.
func (o *Operand) place(ctx context.Context) (err error) {
	if o.pieces, err = o.mapped(); o.pieces != nil || err != nil {
		return err
	}
	if o.whole != nil && o.whole.staging != nil {
		o.staging = o.whole.staging
		return nil
	}
	o.whole, o.at = nil, 0
	o.staging, err = o.stream.Device().Stage(ctx, o.bytes)
	return err
}

// mapped is the memory of the device itself where the host reaches it, and nil
// elsewhere.
func (o *Operand) mapped() (pieces [][]byte, err error) {
	m, ok := o.stream.Device().(device.Mapper)
	if !ok {
		return nil, nil
	}
	for _, r := range cut(o.regions, 0, o.bytes) {
		if r.Rows > 1 {
			return nil, nil
		}
		mem, err := m.Map(r.Buffer)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, mem[r.Offset:r.Offset+r.Bytes:r.Offset+r.Bytes])
	}
	return pieces, nil
}

// fetch queues a copy of the input. For other operands it copies no bytes, but the
// device checks the regions: it reports a buffer that was freed, or a stream that has
// failed, before other ranks depend on the result.
func (o *Operand) fetch(context.Context) error {
	if o.staging == nil {
		return nil
	}
	regions := o.regions
	if !o.Read {
		regions = slices.Clone(regions)
		for i := range regions {
			regions[i].Bytes = 0
		}
	}
	return o.stream.StageSend(o.staging, o.at, regions...)
}

// await waits until the memory is the host's, which mapped memory is when the
// stream has done its work.
func (o *Operand) await(ctx context.Context) error {
	if o.staging == nil {
		return o.stream.Wait(ctx)
	}
	mem, err := o.staging.Bytes(ctx)
	if err != nil {
		return err
	}
	o.pieces = [][]byte{mem[o.at : o.at+o.bytes : o.at+o.bytes]}
	return nil
}

// Pieces is the memory, in as many pieces as it lies in, from Load until Store
// or Free.
func (o *Operand) Pieces() [][]byte { return o.pieces }

// Memory is that of an Operand of one region, which is in one piece, or nil if
// there are no bytes.
func (o *Operand) Memory() []byte {
	if len(o.pieces) == 0 {
		return nil
	}
	return o.pieces[0]
}

// Store copies the first n bytes of the memory to the regions, where they do not
// lie there already.
func (o *Operand) Store(ctx context.Context, n int) error {
	if o.staging == nil || n == 0 {
		return nil
	}
	if err := o.stream.ReceiveInto(o.staging, o.at, cut(o.regions, 0, n)...); err != nil {
		return err
	}
	// Whether the stream fails later, at the work of others, does not matter.
	_, err := o.staging.Bytes(ctx)
	return err
}

// Free gives staging memory back. It does not wait. Of an Operand that is staged
// within another one, that one has to be freed.
func (o *Operand) Free() {
	if o.staging != nil && o.whole == nil {
		o.staging.Free()
	}
}

// Misused reports whether an error of Load is due to arguments that only the device
// could check: a buffer that was freed, a stream that was closed.
func Misused(err error) bool {
	if _, broken := errors.AsType[*device.StreamError](err); broken {
		return false
	}
	_, foreign := errors.AsType[*device.ForeignError](err)
	return foreign || errors.Is(err, device.ErrFreed) || errors.Is(err, device.ErrClosed)
}
