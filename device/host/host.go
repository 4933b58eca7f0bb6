// Package host is the device that is the memory of the host.
//
// Most people call Of, which makes a buffer of a slice that they have already,
// where something takes a device.Buffer:
//
//	b := host.Of(gradient)
//
// Nothing is copied: the buffer is the slice, and package nexar works with it
// where it lies, since Device is a device.Mapper. Its streams are
// device.Reducers.
//
// All Devices are one and the same. Their memory is that of Go: it is collected
// as garbage whether or not a buffer is freed, and a slice that a buffer was
// made of stays valid after that. Alloc fails with a device.MemoryError for
// what no process can address; if the system has not as much as it promised,
// the process ends, as it does with make.
//
// All work is done by the goroutine that queues it, before the call returns. So
// nothing here ever waits, no stream fails, and there are no goroutines. Who
// reads or writes mapped memory while another goroutine queues work with the
// same bytes has a data race.
package host

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// Device is the memory of the host. The zero value is ready to be used.
type Device struct{}

var _ device.Mapper = Device{}

// Of returns a buffer that is b. Free ends the use of the buffer; what becomes
// of b is the caller's business.
func Of(b []byte) device.Buffer {
	return &buffer{mem: b[:len(b):len(b)]}
}

// Name is "host".
func (Device) Name() string { return "host" }

// Alloc returns a buffer of so many bytes, which are zero.
func (Device) Alloc(ctx context.Context, bytes int) (device.Buffer, error) {
	mem, err := alloc(ctx, "buffer", bytes)
	if err != nil {
		return nil, err
	}
	return &buffer{mem: mem}, nil
}

// Stage returns staging memory. Since Device is a device.Mapper, there is no
// need of it.
func (Device) Stage(ctx context.Context, bytes int) (device.Staging, error) {
	mem, err := alloc(ctx, "staging", bytes)
	if err != nil {
		return nil, err
	}
	return &staging{mem: mem}, nil
}

// NewStream returns a stream, which is a device.Reducer.
func (Device) NewStream() (device.Stream, error) { return &stream{}, nil }

// CopyIn copies src to dst.
func (d Device) CopyIn(ctx context.Context, dst device.Region, src []byte) error {
	if err := d.checkCopy(ctx, dst, "src", len(src)); err != nil {
		return err
	}
	copyIn(dst, src)
	return nil
}

// CopyOut copies src to dst.
func (d Device) CopyOut(ctx context.Context, dst []byte, src device.Region) error {
	if err := d.checkCopy(ctx, src, "dst", len(dst)); err != nil {
		return err
	}
	copyOut(dst, src)
	return nil
}

// Map returns the memory of b.
func (d Device) Map(b device.Buffer) ([]byte, error) {
	if _, err := d.check(device.Region{Buffer: b}); err != nil {
		return nil, err
	}
	return b.(*buffer).mem, nil
}

func (d Device) checkCopy(ctx context.Context, r device.Region, what string, length int) error {
	bytes, err := d.check(r)
	if err == nil {
		err = device.CheckLength(d, what, length, bytes)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// check is device.Check, and finds buffers that were freed, too.
func (d Device) check(regions ...device.Region) (bytes int, err error) {
	bytes, err = device.Check(d, regions...)
	if err != nil {
		return 0, err
	}
	for _, r := range regions {
		b, ok := r.Buffer.(*buffer)
		if !ok {
			return 0, &device.ForeignError{Device: d.Name(), Owner: fmt.Sprintf("%T", r.Buffer), What: "buffer"}
		}
		if b.freed.Load() {
			return 0, freed("buffer", len(b.mem))
		}
	}
	return bytes, nil
}

// A buffer is memory that its user may reach.
type buffer struct {
	mem   []byte
	freed atomic.Bool
}

func (b *buffer) Device() device.Device { return Device{} }

func (b *buffer) Len() int { return len(b.mem) }

func (b *buffer) Free() error {
	if b.freed.Swap(true) {
		return freed("buffer", len(b.mem))
	}
	return nil
}

func freed(what string, bytes int) error {
	return fmt.Errorf("device host: %s of %d bytes: %w", what, bytes, device.ErrFreed)
}

// memoryOf is the memory of all the buffer that a region is of, which check
// has seen.
func memoryOf(r device.Region) []byte { return r.Buffer.(*buffer).mem }

// copyIn copies the beginning of src to r and returns the rest of it.
func copyIn(r device.Region, src []byte) []byte {
	mem := memoryOf(r)
	for row := range r.RowCount() {
		start := r.RowAt(row)
		src = src[copy(mem[start:start+r.Bytes], src):]
	}
	return src
}

// copyOut copies r to the beginning of dst and returns the rest of it.
func copyOut(dst []byte, r device.Region) []byte {
	mem := memoryOf(r)
	for row := range r.RowCount() {
		start := r.RowAt(row)
		dst = dst[copy(dst, mem[start:start+r.Bytes]):]
	}
	return dst
}

// alloc makes aligned memory.
func alloc(ctx context.Context, what string, bytes int) (mem []byte, err error) {
	if bytes < 0 {
		return nil, &device.LengthError{Device: "host", What: what, Unit: "bytes", Got: bytes, Want: -1}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	tooLarge := &device.MemoryError{Device: "host", What: what, Asked: bytes, Free: -1, Total: -1}
	if bytes > math.MaxInt-device.Align {
		return nil, tooLarge
	}
	defer func() {
		// Which lengths cannot be addressed only make knows.
		if recover() != nil {
			mem, err = nil, tooLarge
		}
	}()
	room := make([]byte, bytes+device.Align-1)
	skip := int(-address(room) % device.Align)
	return room[skip : skip+bytes : skip+bytes], nil
}

func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
