package transport

// A DeviceMemory is memory of a device, such as a GPU, that a network card is to access directly.
type DeviceMemory struct {
	Address uintptr // of the device
	Bytes   int

	// DMABuf returns a file descriptor of the memory and the offset in it. The callee closes the file after use. Nil
	// means that the driver of the device has none.
	DMABuf func() (fd int, offset int64, err error)
}

// An Exposer registers memory of devices, so that [RemoteMemory] of all Conns of a Transport accesses it. It is a
// capability of these Conns, with the same comparable value for all of them.
type Exposer interface {
	// Expose registers memory of a device. It fails if the network card cannot access it. The memory must not be reused
	// before Close of the result. Closing the Transport closes the registration too.
	Expose(m DeviceMemory) (Exposure, error)
}

// An Exposure is memory of a device that a network card accesses.
type Exposure struct {
	// Memory has the address and the length of the DeviceMemory. It is for Register, Suits and WriteRemote of a [RemoteMemory] alone. The processor cannot read or write it, so
	// it must not be sent on a pipe.
	Memory []byte
	// Method says how the network card accesses the memory, such as "dma-buf".
	Method string
	// Close ends the registration, when no grant or remote write uses it anymore.
	Close func() error
}
