// Package cuda implements package device for GPUs of NVIDIA, by the CUDA driver (libcuda.so.1), which it
// opens at run time. It needs no cgo, no CUDA toolkit and no compiler.
//
//	gpu, err := cuda.Open(0, cuda.Config{})
//	…
//	defer gpu.Close()
//	gradient, err := gpu.Alloc(ctx, bytes)
//	stream, err := gpu.NewStream()
//	…
//	err = comm.WithStream(stream).AllReduce(ctx, device.Float32, device.Whole(gradient), nexar.Sum)
//
// Streams are device.Reducers. Reductions have the bits of the host's.
//
// # Memory and streams of other libraries
//
// A Device uses the primary context of the GPU, which the CUDA runtime and most libraries use too.
// [Device.Of] makes a buffer of an address, [Pointer] returns that of a buffer, and [Device.StreamOf]
// makes a stream of a CUstream, so that work of both is in one order.
//
// # Threads
//
// All calls of the driver for a Device are made by one goroutine, which is locked to a thread with the
// context. It also asks the driver which work is done, and sleeps for longer and longer between two
// questions, at most 1 ms; without a waiting call it asks nothing.
//
// # Failure
//
// Errors name the device, the call of the driver, and have its message: see [Error]. When a kernel of any
// library accesses memory that it may not access, all later calls for the GPU fail in this process,
// and all streams end. If a call of the driver does not return within [Config].CallTimeout, the Device
// fails as a whole, so that its callers return; the call itself cannot be ended.
package cuda

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

// Error is the result of a call of the driver that failed: its name, such as cuMemAlloc_v2, and the code,
// the name and the message of the error.
type Error = cudadriver.Error

// A Config configures a [Device]. The zero value is ready to use.
type Config struct {
	// Memory bounds the bytes of buffers that Alloc returns. The default is the memory of the GPU.
	Memory int64

	// Cache bounds the bytes of freed buffers that are kept, to be allocated again. Others are
	// returned to the driver, which may wait for all work of the GPU. The default is 256 MiB; negative
	// means none.
	Cache int64

	// StagingMemory bounds the bytes of staging memory, which is locked memory of the host: that in
	// use, and that kept to be allocated again. The default is 1 GiB.
	StagingMemory int64

	// CallTimeout bounds a call of the driver. Most take microseconds; the first use of a type of
	// elements compiles kernels. It bounds Open, too. The default is 60 s.
	CallTimeout time.Duration

	// Library is the file name of the driver. The default is libcuda.so.1.
	Library string
}

func (c Config) withDefaults() Config {
	c.Cache = cmp.Or(c.Cache, 256<<20)
	c.StagingMemory = cmp.Or(c.StagingMemory, 1<<30)
	c.CallTimeout = cmp.Or(c.CallTimeout, 60*time.Second)
	c.Library = cmp.Or(c.Library, cudadriver.LibraryName)
	return c
}

// driverOf opens and initializes a driver. After the first call in a process, neither has an effect: the
// dynamic linker returns the library that is open already, and cuInit does nothing.
func driverOf(library string) (*cudadriver.Driver, error) {
	d, err := cudadriver.Open(library)
	if err != nil {
		return nil, err
	}
	if err := d.Init(); err != nil {
		return nil, err
	}
	return d, nil
}

// Info describes a GPU.
type Info struct {
	Name       string   // of the product
	UUID       [16]byte // no other GPU has it; zero if the driver is too old to tell
	Memory     int64    // bytes
	Capability [2]int   // the compute capability: 9, 0
	DMABuf     bool     // the driver can share its memory with other drivers, such as those of RDMA

	direct direct
}

// List describes the GPUs that this process may use: those of the environment variable
// CUDA_VISIBLE_DEVICES, or all. The index of a GPU is its number for [Open]. Library is as in Config.
// List waits for the driver without a limit.
func List(library string) ([]Info, error) {
	d, err := driverOf(cmp.Or(library, cudadriver.LibraryName))
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	n, err := d.DeviceGetCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	list := make([]Info, n)
	for i := range list {
		dev, err := d.DeviceGet(i)
		if err == nil {
			list[i], err = describe(d, dev)
		}
		if err != nil {
			return nil, fmt.Errorf("cuda:%d: %w", i, err)
		}
	}
	return list, nil
}

func describe(d *cudadriver.Driver, dev cudadriver.Device) (i Info, err error) {
	if i.Name, err = d.DeviceGetName(dev); err != nil {
		return i, err
	}
	if i.Memory, err = d.DeviceTotalMem(dev); err != nil {
		return i, err
	}
	for k, a := range []int{cudadriver.AttributeMajor, cudadriver.AttributeMinor} {
		if i.Capability[k], err = d.DeviceGetAttribute(a, dev); err != nil {
			return i, err
		}
	}
	i.UUID, _ = d.DeviceGetUUID(dev)
	dmaBuf, err := d.DeviceGetAttribute(cudadriver.AttributeDmaBuf, dev)
	i.DMABuf = err == nil && dmaBuf != 0
	i.direct = directOf(d, dev)
	return i, nil
}
