// Package device is the contract between nexar and the places where vectors
// live: the memory of the host, or that of an accelerator.
//
// Most people never import it. A vector in ordinary memory is a slice, and the
// functions of package nexar take it as it is. Who has an accelerator imports a
// package that implements Device, gets Buffers from that, and hands them to
// package nexar, which says how its collectives and messages take them. Nothing
// but the methods of their own Device ever touches the memory of Buffers.
//
// # Moving data
//
// CopyIn and CopyOut move data between a buffer and a slice, and return when
// that is done. Data that are to be exchanged take another way, which lets the
// device go on with other work and spares it a copy: through Staging, memory of
// the host that the device can reach by itself, in the order of a Stream.
//
//	staging, err := dev.Stage(ctx, n)
//	…
//	defer staging.Free()
//	err = stream.StageSend(staging, 0, regions...)   // queued: device to staging
//	…
//	data, err := staging.Bytes(ctx)                  // waits; data are the host's
//	…                                                // the collective, on data
//	err = stream.ReceiveInto(staging, 0, regions...) // queued: staging to device
//	…
//	err = stream.Wait(ctx)                           // the buffer has the result
//
// A Region is a part of a buffer, contiguous or in rows; lists of regions are
// taken as one sequence of bytes. What a device can do beyond this it says by
// further interfaces: a Mapper needs no copies at all, since the host reaches
// its memory itself, and a Reducer computes on the device.
//
// # Who owns what, and until when
//
//   - A slice that is given to CopyIn or CopyOut is the device's until the
//     call returns, and not longer, however it ends.
//   - The memory of a Staging is the device's from the moment at which work
//     with it is queued until Bytes has returned it. In between it holds
//     anything, and the host neither reads nor writes it, not through a slice
//     from an earlier Bytes either.
//   - Free of a Buffer or Staging takes effect at once for the caller, whose
//     later uses are ErrFreed, and for the device as soon as no queued work uses
//     it: that work ends as if nothing had happened, and only then the memory
//     is given to others. So Free never waits, and may be deferred.
//   - What Alloc and Stage return holds anything, as a rule not zeros.
//   - A slice of regions may be changed as soon as the call has returned.
//
// # Order
//
// The work of one Stream is done in the order in which it was queued, as if
// each piece began after the one before had ended. There is no order between
// two streams, nor between a stream and CopyIn, CopyOut or the host's access
// to mapped memory, save the one that Wait and Bytes make. Where two of them
// touch the same bytes at the same time and one writes, the bytes are
// anything; nothing else is harmed.
//
// A device may do work as soon as it is queued, or at any time until somebody
// waits for it. To queue work never waits for earlier work.
//
// # Failure
//
// What is wrong with the arguments of a call is told by the call, which then
// has done and queued nothing:
//
//   - a buffer or staging of another device is a *ForeignError, which names
//     both;
//   - a region that is not inside its buffer is a *RangeError, and lengths that
//     do not fit each other are a *LengthError;
//   - a Region without a Buffer, or no Staging, is an ErrNoBuffer;
//   - Alloc and Stage fail with a *MemoryError, which is an ErrNoMemory;
//   - what was freed is an ErrFreed, and what was closed an ErrClosed. That
//     goes for a second Free or Close, too.
//
// Work that fails later ends its stream. What is queued on the stream by then
// is not done, and from then on all methods of the stream but Device and Close
// return the same *StreamError, as does Bytes of every Staging that was to be
// used by the work that failed or was not done. Regions and staging memory that
// it was to write hold anything. Other streams go on, unless the device itself
// has failed.
//
// A context bounds the time that a call may wait, and does no more. If it ends, the call returns
// context.Cause of it; work that was queued is done all the same, staging
// memory stays the device's until a later Bytes returns it, and what CopyIn or
// CopyOut was to write holds anything. Alloc, Stage, CopyIn and CopyOut do
// nothing if the context has ended before. Wait and Bytes look at the context
// only if there is something to wait for.
//
// # Concurrency
//
// All methods may be called from several goroutines. Work that they queue on
// one stream at the same time is done in some order.
//
// # Writing a device
//
// Devices are compared with ==, so a Device is a pointer or a value without
// contents. It begins every call with Check, CheckStaging, CheckPair or
// CheckReduce, which give the errors for all that can be seen from outside, and
// adds what it alone knows: what was freed or closed. Package devicetest holds the suite that
// tells whether it keeps the promises above, and package device/host is the
// shortest example.
//
// Zero bytes are a valid length everywhere. Lengths and offsets need no
// alignment, save for a Reducer.
package device

import "context"

// Align is what the addresses of all staging memory are a multiple of, in
// bytes, and those of memory that was got by Alloc, where a Mapper shows them.
// It is a cache line, and more than any element needs.
const Align = 64

// A Device is a place where buffers live. Whoever has made it ends it, if it is
// to be ended, by what its package has for that; then all that would need it
// fails with ErrClosed.
type Device interface {
	// Name is what people call the device, in one word: its kind, and, where
	// there can be several, a colon and which one it is: "host", "cuda:0".
	Name() string

	// Alloc returns a new buffer of so many bytes. It fails with a
	// *MemoryError if they are not to be had. Where memory was freed that
	// queued work still uses, and that would be enough, it waits for it.
	Alloc(ctx context.Context, bytes int) (Buffer, error)

	// Stage is Alloc for staging memory. Devices keep that for reuse, so it may
	// be got and freed for every piece of work.
	Stage(ctx context.Context, bytes int) (Staging, error)

	// NewStream returns a stream that has no work.
	NewStream() (Stream, error)

	// CopyIn copies src to dst, which is as long, and returns when that is
	// done.
	CopyIn(ctx context.Context, dst Region, src []byte) error

	// CopyOut copies src to dst, which is as long, and returns when that is
	// done.
	CopyOut(ctx context.Context, dst []byte, src Region) error
}

// A Buffer is memory of a device.
type Buffer interface {
	// Device is where the buffer lives.
	Device() Device

	// Len is its length in bytes, also after Free.
	Len() int

	// Free gives the memory back, once no queued work uses it. If it is the
	// memory of somebody else that a buffer was made of, it stays his.
	Free() error
}

// A Staging is memory of the host through which data go to a device and come
// from it. Whoever writes it, or has it written, changes no buffer by that.
type Staging interface {
	// Device is the device that can reach the memory.
	Device() Device

	// Len is its length in bytes, also after Free.
	Len() int

	// Bytes waits until all work with the memory that was queued before is
	// done, and returns the memory, always the same slice. It is the caller's,
	// to read and to write, until he queues other work with it or frees it.
	//
	// If work with the memory has failed, so does Bytes, from then on.
	Bytes(ctx context.Context) ([]byte, error)

	// Free gives the memory back, once no queued work uses it.
	Free() error
}

// A Stream is work for a device, done in the order in which it is queued.
type Stream interface {
	// Device is the device that does the work.
	Device() Device

	// StageSend queues a copy of the regions, one after the other, to the
	// bytes of dst from offset at on. The other bytes stay as they are.
	StageSend(dst Staging, at int, src ...Region) error

	// ReceiveInto queues a copy from the bytes of src from offset at on to the
	// regions, one after the other. Where regions overlap, the last one counts.
	ReceiveInto(src Staging, at int, dst ...Region) error

	// Copy queues a copy from src to dst, both on this device. They have the
	// same number of bytes in each row, and as many rows; the strides may
	// differ. If they share memory, it fails with ErrOverlap.
	Copy(dst, src Region) error

	// Wait waits until all work that was queued before is done.
	Wait(ctx context.Context) error

	// Close ends the use of the stream. Work that is queued is done all the
	// same, and whoever already waits for it goes on; Close does not wait.
	Close() error
}
