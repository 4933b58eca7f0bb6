package cudadriver

import (
	"runtime"
	"strings"
	"unsafe"
)

// Init initializes the driver. It must be called before all other functions.
func (d *Driver) Init() error { return d.call(callInit, 0) }

// DriverGetVersion returns the version of CUDA that the driver supports: 12040 for 12.4.
func (d *Driver) DriverGetVersion() (int, error) {
	var v int32
	err := d.call(callDriverGetVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// DeviceGetCount returns the number of devices that the process may use.
func (d *Driver) DeviceGetCount() (int, error) {
	var n int32
	err := d.call(callDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// DeviceGet returns the device with an ordinal.
func (d *Driver) DeviceGet(ordinal int) (Device, error) {
	var dev int32
	err := d.call(callDeviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(ordinal))
	return Device(dev), err
}

// DeviceGetName returns the name of the product.
func (d *Driver) DeviceGetName(dev Device) (string, error) {
	var name [256]byte
	if err := d.call(callDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(dev)); err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(string(name[:]), "\x00")
	return text, nil
}

// Attributes of a device.
const (
	AttributeMultiprocessors = 16
	AttributeMaxPitch        = 11
	AttributeMajor           = 75 // of the compute capability
	AttributeMinor           = 76
	AttributeDmaBuf          = 124 // MemGetHandleForAddressRange supports dma-buf

	AttributeDirectRDMA     = 116 // network cards can access the memory (GPUDirect RDMA)
	AttributeFlushOptions   = 117 // how writes of network cards can be flushed: FlushByHost
	AttributeWritesOrdering = 118 // OrderedForOwner or more: kernels see such writes without a flush
)

// FlushByHost is a bit of AttributeFlushOptions, and OrderedForOwner a value of AttributeWritesOrdering.
const (
	FlushByHost     = 1
	OrderedForOwner = 100
)

// DeviceGetAttribute returns an attribute.
func (d *Driver) DeviceGetAttribute(attribute int, dev Device) (int, error) {
	var v int32
	err := d.call(callDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attribute), uintptr(dev))
	return int(v), err
}

// DeviceGetUUID returns the number of the device that no other device has. Old drivers lack the
// function.
func (d *Driver) DeviceGetUUID(dev Device) (id [16]byte, err error) {
	p := new([16]byte)
	err = d.call(callDeviceGetUuid, uintptr(unsafe.Pointer(p)), uintptr(dev))
	return *p, err
}

// DeviceTotalMem returns the memory of a device in bytes.
func (d *Driver) DeviceTotalMem(dev Device) (int64, error) {
	var n uintptr
	err := d.call(callDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(dev))
	return int64(n), err
}

// DevicePrimaryCtxRetain returns the context that all libraries of the process share. Each call needs a
// DevicePrimaryCtxRelease; the last one destroys the context with all that it has.
func (d *Driver) DevicePrimaryCtxRetain(dev Device) (Context, error) {
	var c uintptr
	err := d.call(callDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(dev))
	return Context(c), err
}

// DevicePrimaryCtxRelease reverts DevicePrimaryCtxRetain.
func (d *Driver) DevicePrimaryCtxRelease(dev Device) error {
	return d.call(callDevicePrimaryCtxRelease, uintptr(dev))
}

// DeviceCanAccessPeer reports whether kernels and copies of dev can access the memory of peer directly.
func (d *Driver) DeviceCanAccessPeer(dev, peer Device) (bool, error) {
	var can int32
	err := d.call(callDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(dev), uintptr(peer))
	return can != 0, err
}

// CtxSetCurrent makes a context that of the calling thread.
func (d *Driver) CtxSetCurrent(c Context) error { return d.call(callCtxSetCurrent, uintptr(c)) }

// CtxEnablePeerAccess lets the current context access the memory of another one. It succeeds also if
// it already can.
func (d *Driver) CtxEnablePeerAccess(peer Context) error {
	code := d.result(callCtxEnablePeerAccess, uintptr(peer), 0)
	if code == 0 || code == ErrorPeerAlreadyEnabled {
		return nil
	}
	return d.errorOf(callCtxEnablePeerAccess, code)
}

// MemGetInfo returns the free and the total memory of the device in bytes.
func (d *Driver) MemGetInfo() (free, total int64, err error) {
	var f, t uintptr
	err = d.call(callMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int64(f), int64(t), err
}

// MemAlloc allocates memory of the device. 0 bytes are an error.
func (d *Driver) MemAlloc(bytes int) (Ptr, error) {
	var p uintptr
	err := d.call(callMemAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes))
	return Ptr(p), err
}

// MemFree frees memory of the device. It may wait for all work of the device.
func (d *Driver) MemFree(p Ptr) error { return d.call(callMemFree, uintptr(p)) }

// MemHostAlloc allocates memory of the host that all devices can access.
func (d *Driver) MemHostAlloc(bytes int) (uintptr, error) {
	const portable = 1
	var p uintptr
	err := d.call(callMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), portable)
	return p, err
}

// MemFreeHost frees memory of MemHostAlloc. It may wait for all work of the device.
func (d *Driver) MemFreeHost(p uintptr) error { return d.call(callMemFreeHost, p) }

// MemcpyHtoDAsync queues a copy from memory of MemHostAlloc.
func (d *Driver) MemcpyHtoDAsync(dst Ptr, src uintptr, bytes int, s Stream) error {
	return d.call(callMemcpyHtoDAsync, uintptr(dst), src, uintptr(bytes), uintptr(s))
}

// MemcpyDtoHAsync queues a copy to memory of MemHostAlloc.
func (d *Driver) MemcpyDtoHAsync(dst uintptr, src Ptr, bytes int, s Stream) error {
	return d.call(callMemcpyDtoHAsync, dst, uintptr(src), uintptr(bytes), uintptr(s))
}

// MemcpyDtoDAsync queues a copy within a device.
func (d *Driver) MemcpyDtoDAsync(dst, src Ptr, bytes int, s Stream) error {
	return d.call(callMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

// MemcpyPeerAsync queues a copy between the devices of two contexts.
func (d *Driver) MemcpyPeerAsync(dst Ptr, dstCtx Context, src Ptr, srcCtx Context, bytes int, s Stream) error {
	return d.call(callMemcpyPeerAsync, uintptr(dst), uintptr(dstCtx), uintptr(src), uintptr(srcCtx), uintptr(bytes), uintptr(s))
}

// Memory types of a Memcpy2D.
const (
	MemoryHost   = 1
	MemoryDevice = 2
)

// A Memcpy2D is CUDA_MEMCPY2D: Height rows of WidthInBytes bytes.
type Memcpy2D struct {
	SrcXInBytes   uintptr
	SrcY          uintptr
	SrcMemoryType uint32
	SrcHost       uintptr
	SrcDevice     Ptr
	SrcArray      uintptr
	SrcPitch      uintptr
	DstXInBytes   uintptr
	DstY          uintptr
	DstMemoryType uint32
	DstHost       uintptr
	DstDevice     Ptr
	DstArray      uintptr
	DstPitch      uintptr
	WidthInBytes  uintptr
	Height        uintptr
}

// Memcpy2DAsync queues a copy of rows.
func (d *Driver) Memcpy2DAsync(c *Memcpy2D, s Stream) error {
	return d.call(callMemcpy2DAsync, uintptr(unsafe.Pointer(c)), uintptr(s))
}

// StreamCreate returns a stream that does not wait for the default stream, nor this for it.
func (d *Driver) StreamCreate() (Stream, error) {
	const nonBlocking = 1
	var s uintptr
	err := d.call(callStreamCreate, uintptr(unsafe.Pointer(&s)), nonBlocking)
	return Stream(s), err
}

// StreamDestroy ends the use of a stream. Queued work is done.
func (d *Driver) StreamDestroy(s Stream) error { return d.call(callStreamDestroy, uintptr(s)) }

// StreamWaitEvent lets work that is queued from now on wait for an event, which may be of another
// context.
func (d *Driver) StreamWaitEvent(s Stream, e Event) error {
	return d.call(callStreamWaitEvent, uintptr(s), uintptr(e), 0)
}

// EventCreate returns an event without a time.
func (d *Driver) EventCreate() (Event, error) {
	const disableTiming = 2
	var e uintptr
	err := d.call(callEventCreate, uintptr(unsafe.Pointer(&e)), disableTiming)
	return Event(e), err
}

// EventDestroy ends the use of an event.
func (d *Driver) EventDestroy(e Event) error { return d.call(callEventDestroy, uintptr(e)) }

// EventRecord lets an event mark the end of the work of a stream that is queued so far.
func (d *Driver) EventRecord(e Event, s Stream) error {
	return d.call(callEventRecord, uintptr(e), uintptr(s))
}

// EventQuery reports whether the work before an event is done. The error may be of any earlier work of
// the context.
func (d *Driver) EventQuery(e Event) (done bool, err error) {
	switch code := d.result(callEventQuery, uintptr(e)); code {
	case 0:
		return true, nil
	case notReady:
		return false, nil
	default:
		return false, d.errorOf(callEventQuery, code)
	}
}

// ModuleLoad compiles PTX, which ends with a zero byte, for the device of the current context. An
// error has the messages of the compiler.
func (d *Driver) ModuleLoad(ptx []byte) (Module, error) {
	const (
		errorLogBuffer = 5
		errorLogBytes  = 6
	)
	log := make([]byte, 4096)
	var m uintptr
	options := []uint32{errorLogBuffer, errorLogBytes}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&log[0])
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	code := d.result(callModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&ptx[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	if code == 0 {
		return Module(m), nil
	}
	e := d.errorOf(callModuleLoadDataEx, code)
	e.Log, _, _ = strings.Cut(string(log), "\x00")
	return 0, e
}

// ModuleUnload ends the use of a module and its functions.
func (d *Driver) ModuleUnload(m Module) error { return d.call(callModuleUnload, uintptr(m)) }

// ModuleGetFunction returns a kernel by its name.
func (d *Driver) ModuleGetFunction(m Module, name string) (Function, error) {
	text := append([]byte(name), 0)
	var f uintptr
	err := d.call(callModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&text[0])))
	return Function(f), err
}

// LaunchKernel queues a kernel with 64-bit arguments, for gridX·gridY blocks of block threads.
func (d *Driver) LaunchKernel(f Function, gridX, gridY, block int, s Stream, args []uint64) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&args[0])
	params := make([]uintptr, len(args))
	for i := range args {
		params[i] = uintptr(unsafe.Pointer(&args[i]))
	}
	return d.call(callLaunchKernel, uintptr(f), uintptr(gridX), uintptr(gridY), 1, uintptr(block), 1, 1, 0, uintptr(s),
		uintptr(unsafe.Pointer(&params[0])), 0)
}

// An IpcMemHandle names memory of a device for other processes of the host.
type IpcMemHandle [64]byte

// IpcGetMemHandle returns the handle of memory of MemAlloc.
func (d *Driver) IpcGetMemHandle(p Ptr) (h IpcMemHandle, err error) {
	q := new(IpcMemHandle)
	err = d.call(callIpcGetMemHandle, uintptr(unsafe.Pointer(q)), uintptr(p))
	return *q, err
}

// IpcOpenMemHandle maps memory of another process. That of the own process is an error.
func (d *Driver) IpcOpenMemHandle(h IpcMemHandle) (Ptr, error) {
	const lazyEnablePeerAccess = 1
	p, q := new(uintptr), new(IpcMemHandle)
	*q = h
	var err error
	switch runtime.GOARCH {
	case "amd64":
		// The handle is passed by value. On amd64 a structure of more than 16 bytes lies on the stack,
		// behind the six registers, where further integers would be.
		w := (*[8]uintptr)(unsafe.Pointer(q))
		err = d.call(callIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), lazyEnablePeerAccess, 0, 0, 0, 0,
			w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7])
	default:
		// On arm64 the caller passes the address of a copy.
		err = d.call(callIpcOpenMemHandle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(q)), lazyEnablePeerAccess)
	}
	return Ptr(*p), err
}

// IpcCloseMemHandle unmaps memory of IpcOpenMemHandle.
func (d *Driver) IpcCloseMemHandle(p Ptr) error { return d.call(callIpcCloseMemHandle, uintptr(p)) }

// MemGetAddressRange returns the beginning and the length of the allocation that has an address.
func (d *Driver) MemGetAddressRange(p Ptr) (base Ptr, bytes int, err error) {
	var b, n uintptr
	err = d.call(callMemGetAddressRange, uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&n)), uintptr(p))
	return Ptr(b), int(n), err
}

// DMABuf returns a file descriptor for memory of the device, with which other drivers register it. The
// caller closes it. Address and length are multiples of the page size of the host.
func (d *Driver) DMABuf(p Ptr, bytes int) (fd int, err error) {
	const dmaBuf = 1
	n := new(int32)
	*n = -1
	err = d.call(callMemGetHandleForAddressRange, uintptr(unsafe.Pointer(n)), uintptr(p), uintptr(bytes), dmaBuf, 0)
	return int(*n), err
}

// FlushDirectWrites waits until kernels of the device of the current context see all earlier writes of network cards.
func (d *Driver) FlushDirectWrites() error {
	const currentContext, toOwner = 0, 100
	return d.call(callFlushGPUDirectRDMAWrites, currentContext, toOwner)
}
