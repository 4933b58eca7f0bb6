// Package host implements package device for the memory of the host.
//
// Most programs only call [Of], to pass a slice where a device.Buffer is needed:
//
//	b := host.Of(gradient)
//
// The buffer shares the memory of the slice. Package nexar uses it in place, since [Device] is
// a device.Mapper. Streams are device.Reducers.
//
// All values of Device are equal. The memory is managed by Go: it is garbage-collected whether
// or not a buffer is freed, and the slice of a freed buffer remains valid. Alloc fails with a
// device.MemoryError for lengths that a process cannot address; if the system runs out of
// memory, the process ends, as with make.
//
// The goroutine that queues work does it before the call returns. No call waits, no stream
// fails, and the package starts no goroutines. Accessing mapped memory while another goroutine
// queues work with the same bytes is a data race.
package host

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// Device is the memory of the host. The zero value is ready to use.
type Device struct{}

var _ device.Mapper = Device{}

// Of returns a buffer with the memory of b. Free ends the use of the buffer and does not affect
// b.
func Of(b []byte) device.Buffer {
	return &buffer{memory{what: "buffer", mem: b[:len(b):len(b)]}}
}

// Name returns "host".
func (Device) Name() string { return "host" }

// Alloc returns a buffer of zeros, of a length in bytes.
func (Device) Alloc(ctx context.Context, bytes int) (device.Buffer, error) {
	mem, err := alloc(ctx, "buffer", bytes)
	if err != nil {
		return nil, err
	}
	return &buffer{memory{what: "buffer", mem: mem}}, nil
}

// Stage returns staging memory. Callers that use the device.Mapper do not need it.
func (Device) Stage(ctx context.Context, bytes int) (device.Staging, error) {
	mem, err := alloc(ctx, "staging", bytes)
	if err != nil {
		return nil, err
	}
	return &staging{memory{what: "staging", mem: mem}}, nil
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

// check is device.Check, and also checks for freed buffers.
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
		if err := b.err(); err != nil {
			return 0, err
		}
	}
	return bytes, nil
}

// A memory is Go memory of a buffer or staging.
type memory struct {
	what  string // "buffer" or "staging"
	mem   []byte
	freed atomic.Bool
}

type buffer struct{ memory }

func (m *memory) Device() device.Device { return Device{} }

func (m *memory) Len() int { return len(m.mem) }

func (m *memory) Free() error {
	if m.freed.Swap(true) {
		return m.err()
	}
	return nil
}

// err returns an error if the memory is freed.
func (m *memory) err() error {
	if m.freed.Load() {
		return fmt.Errorf("device host: %s of %d bytes: %w", m.what, len(m.mem), device.ErrFreed)
	}
	return nil
}

// memoryOf returns the memory of the buffer of a checked region.
func memoryOf(r device.Region) []byte { return r.Buffer.(*buffer).mem }

// copyIn copies the beginning of src to r and returns the rest of src.
func copyIn(r device.Region, src []byte) []byte {
	mem := memoryOf(r)
	for row := range r.RowCount() {
		start := r.RowAt(row)
		src = src[copy(mem[start:start+r.Bytes], src):]
	}
	return src
}

// copyOut copies r to the beginning of dst and returns the rest of dst.
func copyOut(dst []byte, r device.Region) []byte {
	mem := memoryOf(r)
	for row := range r.RowCount() {
		start := r.RowAt(row)
		dst = dst[copy(dst, mem[start:start+r.Bytes]):]
	}
	return dst
}

// alloc returns aligned memory.
func alloc(ctx context.Context, what string, bytes int) (mem []byte, err error) {
	if bytes < 0 {
		return nil, &device.LengthError{Device: "host", What: what, Unit: "bytes", Got: bytes, Want: -1}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	tooLarge := &device.MemoryError{Device: "host", What: what, Requested: bytes, Free: -1, Total: -1}
	if bytes > math.MaxInt-device.Align {
		return nil, tooLarge
	}
	defer func() {
		if recover() != nil { // make panics for lengths that cannot be addressed
			mem, err = nil, tooLarge
		}
	}()
	room := make([]byte, bytes+device.Align-1)
	skip := int(-address(room) % device.Align)
	return room[skip : skip+bytes : skip+bytes], nil
}

func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
