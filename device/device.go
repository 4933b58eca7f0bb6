// Package device is the contract between nexar and the memory of vectors: that of the host, or
// of an accelerator.
//
// Most programs do not import it: a vector in ordinary memory is a slice, which the functions
// of package nexar take directly. A program with an accelerator imports an implementation of
// [Device], allocates each [Buffer] from it, and passes buffers to package nexar. Only methods
// of the Device access the memory of its buffers.
//
// # Moving data
//
// CopyIn and CopyOut copy between a buffer and a slice, and block until the copy is done.
// Communication instead copies through [Staging], memory of the host that the device can
// access, in the order of a [Stream]. This saves a copy, and the device continues with other
// work:
//
//	staging, err := dev.Stage(ctx, n)
//	…
//	defer staging.Free()
//	err = stream.StageSend(staging, 0, regions...)   // queued: device to staging
//	…
//	data, err := staging.Bytes(ctx)                  // waits; the host owns data
//	…                                                // the collective, on data
//	err = stream.ReceiveInto(staging, 0, regions...) // queued: staging to device
//	…
//	err = stream.Wait(ctx)                           // the buffer has the result
//
// A [Region] is a part of a buffer, contiguous or in rows; a list of regions is one sequence of
// bytes. A device declares further capabilities by optional interfaces: with a [Mapper], the
// host accesses buffers without a copy, a [Reducer] reduces vectors on the device, and a [Peer]
// shares its memory with other devices.
//
// # Ownership
//
//   - The device uses a slice passed to CopyIn or CopyOut until the call returns, also if it
//     fails.
//   - The device owns the memory of a Staging from the time work with it is queued until Bytes
//     returns. Its contents are undefined in between, and the host must neither read nor write
//     it, also through the result of an earlier Bytes.
//   - Free of a Buffer or Staging takes effect at once for the caller: later uses are
//     [ErrFreed]. The device reuses the memory when no queued work uses it; that work is done
//     normally. Free does not block, and may be deferred.
//   - The contents of new buffers and stagings are undefined.
//   - The caller may change a slice of regions when the call returns.
//
// # Order
//
// The work of one Stream is done in the order in which it was queued, as if each piece began
// after the end of the one before. Two streams are not ordered, nor is a stream with CopyIn,
// CopyOut or accesses of the host to mapped memory, except by Wait and Bytes. If two unordered
// accesses overlap and one writes, the contents of the bytes are undefined; nothing else is
// affected.
//
// A device may do work at any time from when it is queued until a call waits for it. Queueing
// does not wait for earlier work.
//
// # Errors
//
// A call with invalid arguments returns an error, and has done and queued nothing:
//
//   - a buffer or staging of another device is a [*ForeignError];
//   - a region that is not inside its buffer is a [*RangeError], and lengths that do not match
//     are a [*LengthError];
//   - a Region without a Buffer, or a nil Staging, is [ErrNoBuffer];
//   - Alloc and Stage fail with a [*MemoryError], which is [ErrNoMemory];
//   - use of freed memory is [ErrFreed], and of a closed stream [ErrClosed], including a
//     second Free or Close.
//
// Work that fails later ends its stream. The work queued behind it is not done, and all methods
// of the stream except Device and Close return the same [*StreamError] from then on, as does
// Bytes of each Staging of work that failed or was not done. The contents of the regions and
// staging memory that it should have written are undefined. Other streams continue, unless the
// whole device has failed.
//
// A context bounds the time that a call waits. If it ends, the call returns its
// [context.Cause]. Queued work is done nevertheless, the device owns staging memory until a
// later Bytes returns, and the destination of a CopyIn or CopyOut is undefined. Alloc, Stage,
// CopyIn and CopyOut do nothing if the context ended before the call. Wait and Bytes check it
// only if they have to wait.
//
// # Concurrency
//
// All methods may be called concurrently. Work that is queued on one stream concurrently is
// done in an arbitrary order.
//
// # Implementing a device
//
// Devices are compared with ==, so a Device is a pointer or a value without contents. A method
// begins with Check, CheckStaging, CheckPair or CheckReduce, which return the errors for all
// properties that the interfaces show, and then checks for freed memory and closed streams.
// Package devicetest is the conformance suite, and package device/host the shortest example.
//
// Zero is a valid length everywhere. Lengths and offsets need no alignment, except for a
// Reducer.
package device

import "context"

// Align is the alignment, in bytes, of all staging memory, and of allocated memory that a
// Mapper maps: a cache line, which suffices for all element types.
const Align = 64

// A Device is a place for buffers. The package that implements it may provide a way to close
// it; calls that need the device then fail with ErrClosed.
type Device interface {
	// Name returns the name of the device, one word: its kind, and if there can be several, a
	// colon and its number: "host", "cuda:0".
	Name() string

	// Alloc returns a new buffer of a length in bytes. It fails with a *MemoryError if there
	// is not enough memory. If freed memory would suffice that queued work still uses, it
	// waits for that work.
	Alloc(ctx context.Context, bytes int) (Buffer, error)

	// Stage is Alloc for staging memory. Devices reuse it, so a caller may allocate and free
	// it for each piece of work.
	Stage(ctx context.Context, bytes int) (Staging, error)

	// NewStream returns a stream without work.
	NewStream() (Stream, error)

	// CopyIn copies src to dst, of the same length, and blocks until that is done.
	CopyIn(ctx context.Context, dst Region, src []byte) error

	// CopyOut copies src to dst, of the same length, and blocks until that is done.
	CopyOut(ctx context.Context, dst []byte, src Region) error
}

// A Buffer is memory of a device.
type Buffer interface {
	// Device returns the device that has the memory.
	Device() Device

	// Len returns the length in bytes, also after Free.
	Len() int

	// Free releases the memory when no queued work uses it. Memory that the buffer was
	// created from remains with its owner.
	Free() error
}

// A Staging is memory of the host through which data is copied to and from a device. It is
// separate from the memory of all buffers.
type Staging interface {
	// Device returns the device that can access the memory.
	Device() Device

	// Len returns the length in bytes, also after Free.
	Len() int

	// Bytes waits until all work with the memory that is queued is done, and returns the
	// memory, always the same slice. The caller owns it until further work with it is queued
	// or it is freed.
	//
	// If work with the memory failed, Bytes returns its error from then on.
	Bytes(ctx context.Context) ([]byte, error)

	// Free releases the memory when no queued work uses it.
	Free() error
}

// A Stream is a queue of work for a device, done in order.
type Stream interface {
	// Device returns the device that does the work.
	Device() Device

	// StageSend queues a copy of the concatenated regions to dst, from byte at on. Other bytes
	// of dst are unchanged.
	StageSend(dst Staging, at int, src ...Region) error

	// ReceiveInto queues a copy of the bytes of src, from byte at on, to the concatenated
	// regions. If regions overlap, the last one has priority.
	ReceiveInto(src Staging, at int, dst ...Region) error

	// Copy queues a copy from src to dst, both of this device. They must have equal row
	// lengths and numbers of rows; strides may differ. Regions that share memory are an
	// ErrOverlap.
	Copy(dst, src Region) error

	// Wait waits until all work that is queued is done.
	Wait(ctx context.Context) error

	// Close ends the use of the stream. It does not block: queued work is done, and calls
	// that already wait for it continue.
	Close() error
}
