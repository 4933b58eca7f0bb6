package device

import "context"

// A Direct is a Device with memory that other devices of the host, such as network cards, can access without the
// processor (GPUDirect). Messages and collectives between hosts then may need no memory of the host.
type Direct interface {
	Device

	// Direct describes the memory of a buffer. It fails with ErrFreed, or if the device does not let others access
	// the memory, or cannot order their accesses with its own; vectors are then copied through memory of the host.
	Direct(b Buffer) (*DirectMemory, error)

	// FlushWrites returns when all bytes that other devices have written before the call are visible to work that is
	// queued after it, on any stream of this device. Without it, a kernel may read older contents.
	FlushWrites(ctx context.Context) error
}

// A DirectMemory is the memory of a buffer for other devices, which access it from Hold to release. Nothing orders these
// accesses with work of the device on the same bytes: the caller waits for that work before, and calls FlushWrites after.
type DirectMemory struct {
	Address uintptr // of the device: the processor cannot access it
	Bytes   int

	// DMABuf returns a file descriptor of the memory, which the caller closes, and the offset of the buffer in it. Nil means
	// that the device has none.
	DMABuf func() (fd int, offset int64, err error)

	// Hold keeps the memory from being reused until release, also if the buffer is freed: that takes effect afterwards.
	// It fails if the buffer is freed.
	Hold func() (release func(), err error)

	// AtFree lets f be called once when the buffer is freed, nothing holds it and no queued work uses it, before the
	// memory is reused or returned. f ends the registration of the memory, and calls no method of the device.
	AtFree func(f func())
}
