// Package staging copies operands of calls from device buffers to memory of the
// host, and results back.
//
// A caller makes an Operand for the input of a call and one for its result:
//
//	src, err := staging.New(stream, regions)
//	…
//	defer src.Free()
//	src.Read = true
//	err = staging.Load(ctx, dst, src)
//	…                                // the call, from src.Memory to dst.Memory
//	err = dst.Store(ctx, dst.Len())
//
// The memory is the device's own if the host can access it (device.Mapper) and the regions are
// contiguous. Otherwise it is staging memory of the same length, which the device fills and
// empties in the order of the stream. An Operand that is a block of another one can share its
// staging memory. Only methods of the device access device buffers.
//
// # Failure
//
// Errors are those of the device; [Misused] recognizes errors of the arguments. Load checks all
// regions, also those that it does not read, so that Store fails only for later reasons. After an
// error, and when the context has ended, call only Free: the device still does queued work, and
// the memory is reused after that.
//
// # Concurrency
//
// An Operand is used by one goroutine at a time.
//
// # Order
//
// Staging memory is as long as the regions; a region that is as long as a block of the other shares it, and the collective runs in
// place. For a region that is only written, Load queues a copy of no bytes, so that a freed buffer or a failed stream is
// detected before other ranks depend on this one. A vector is not split to overlap copies and exchange: that would be several
// collectives in place of the one that ranks with slices call.
package staging

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// An Operand is a sequence of regions of the device of a stream.
type Operand struct {
	Read bool // Load copies the content of the regions
	// Joined says that Load provides one piece, aligned for elements of all types: it stages regions
	// that are several pieces of memory of the host, or not aligned.
	Joined bool

	stream  device.Stream
	regions []device.Region
	bytes   int

	pieces  [][]byte       // the memory, after Load
	staging device.Staging // nil if the memory is the device's own
	at      int            // the offset of this Operand in staging
	whole   *Operand       // the owner of staging, if that is another Operand
}

// New returns an Operand of regions, which must not change before its last use. The error is that of
// device.Check; the Operand then has length 0.
func New(s device.Stream, regions []device.Region) (*Operand, error) {
	bytes, err := device.Check(s.Device(), regions...)
	if err != nil {
		return &Operand{stream: s}, err
	}
	return &Operand{stream: s, regions: regions, bytes: bytes}, nil
}

// Len returns the length in bytes.
func (o *Operand) Len() int { return o.bytes }

// Contiguous returns the region of an Operand without gaps, of at least one byte, and reports whether it is one.
func (o *Operand) Contiguous() (r device.Region, ok bool) {
	list := cut(o.regions, 0, o.bytes)
	if len(list) != 1 || list[0].Rows > 1 {
		return device.Region{}, false
	}
	return list[0], true
}

// Within lets o share the staging memory of whole, as the block that begins at byte at. It has no
// effect if one of them needs no staging memory. [Load] must get whole before o.
func (o *Operand) Within(whole *Operand, at int) { o.whole, o.at = whole, at }

// Clashes reports whether regions of two operands overlap, except that one may be Within the other
// and lie exactly at that position.
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

// Tangled reports whether any two regions of o overlap.
func (o *Operand) Tangled() bool {
	for i, r := range o.regions {
		if slices.ContainsFunc(o.regions[:i], r.Overlaps) {
			return true
		}
	}
	return false
}

// Load provides memory for operands of one stream, copies the input to it, and waits until the host
// may access it.
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

// place maps the memory of the device, or allocates staging memory.
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

// mapped returns the memory of the device if the host can access it, and nil otherwise.
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
	if o.Joined && (len(pieces) > 1 || !aligned(pieces[0])) {
		return nil, nil
	}
	return pieces, nil
}

// aligned reports whether an element of any type may begin at the address of p.
func aligned(p []byte) bool {
	const longest = 16
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%longest == 0
}

// fetch queues a copy of the input. For an Operand that is not read it copies no bytes, but the
// device checks the regions: it reports a freed device buffer, or a failed stream, before other ranks
// depend on the result.
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

// await waits until the host may access the memory: mapped memory when the stream has done its work.
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

// Pieces returns the memory, in contiguous pieces, from Load until Store or Free.
func (o *Operand) Pieces() [][]byte { return o.pieces }

// Memory returns the memory of an Operand of one region, or of a Joined one, or nil if its length is 0.
func (o *Operand) Memory() []byte {
	if len(o.pieces) == 0 {
		return nil
	}
	return o.pieces[0]
}

// Store copies the first n bytes of the memory to the regions, unless the memory is the device's own.
func (o *Operand) Store(ctx context.Context, n int) error {
	if o.staging == nil || n == 0 {
		return nil
	}
	if err := o.stream.ReceiveInto(o.staging, o.at, cut(o.regions, 0, n)...); err != nil {
		return err
	}
	// A later failure of the stream, by other work, does not matter.
	_, err := o.staging.Bytes(ctx)
	return err
}

// Free frees staging memory. It does not wait. For an Operand Within another one, free the other one.
func (o *Operand) Free() {
	if o.staging != nil && o.whole == nil {
		_ = o.staging.Free()
	}
}

// Misused reports whether an error of [Load] is an error of the arguments that only the device could
// find: a freed device buffer, a closed stream.
func Misused(err error) bool {
	if _, broken := errors.AsType[*device.StreamError](err); broken {
		return false
	}
	_, foreign := errors.AsType[*device.ForeignError](err)
	return foreign || errors.Is(err, device.ErrFreed) || errors.Is(err, device.ErrClosed)
}
