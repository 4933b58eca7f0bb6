//go:build linux

package rdma

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// A DeviceMemory is memory of a GPU that an RDMA device is to access directly (GPUDirect): see [Expose]. A
// Device of package device/cuda describes it: see device.Direct.
type DeviceMemory = transport.DeviceMemory

// Methods of an RDMA device for access to memory of a GPU.
const (
	MethodDMABuf     = "dma-buf"     // of the kernel
	MethodPeerMemory = "peer memory" // of the driver of the GPU, by the kernel module nvidia_peermem
)

// ErrStaging: an RDMA device cannot access memory of a GPU, so that it must be copied through memory of the host.
var ErrStaging = errors.New("rdma: the device cannot access the memory of the GPU")

// An Exposed is memory of a GPU that the RDMA device of a transport accesses directly.
type Exposed struct {
	// Memory is for [transport.RemoteMemory] of Conns of the transport only: for Register, and as the source of
	// WriteRemote. The processor cannot read or write it, so it must not be sent on a pipe.
	Memory []byte
	// Method is MethodDMABuf or MethodPeerMemory.
	Method string

	e *exposure
}

// Expose registers memory of a GPU with the RDMA device of a transport of [New]. It tries the methods in their order. If
// all fail, the error is an ErrStaging with their reasons. The memory must not be freed before Close, or the end of Close of the
// transport. Programs that send vectors by package nexar need not call it. After Close of the transport, the error is
// [transport.ErrClosed].
//
// It has not been tried on hardware.
func Expose(t transport.Transport, m DeviceMemory) (*Exposed, error) {
	own, ok := t.(*rdma)
	if !ok || own.dev == nil {
		return nil, fmt.Errorf("rdma: the transport %s has no RDMA device", t.Name())
	}
	if own.dev.loose {
		return nil, fmt.Errorf("%w: %s is software RDMA", ErrStaging, own.dev.d.Name)
	}
	return expose(own.dev, own.dev.pd, m)
}

// Expose implements [transport.Exposer]: see the function [Expose].
func (t *rdma) Expose(m transport.DeviceMemory) (transport.Exposure, error) {
	x, err := Expose(t, m)
	if err != nil {
		return transport.Exposure{}, err
	}
	return transport.Exposure{Memory: x.Memory, Method: x.Method, Close: x.Close}, nil
}

// A registrar registers memory: a protection domain.
type registrar interface {
	RegisterDMABuf(fd int, offset, addr uintptr, n, access int) (*verbs.MR, error)
	RegisterAddress(addr uintptr, n, access int) (*verbs.MR, error)
}

func expose(dev *device, by registrar, m DeviceMemory) (*Exposed, error) {
	if m.Address == 0 || m.Bytes < 1 {
		return nil, fmt.Errorf("rdma: memory of a GPU of %d bytes at %#x: want at least 1 byte", m.Bytes, m.Address)
	}
	if !dev.holdOpen() {
		return nil, errExposeClosed
	}
	mr, method, err := registerDevice(by, m)
	if err != nil {
		dev.letGo()
		return nil, err
	}
	e := &exposure{dev: dev, c: &cached{mr: mr}, from: m.Address, to: m.Address + uintptr(m.Bytes)}
	if !dev.adopt(e) {
		_ = e.close()
		return nil, errExposeClosed
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&m.Address)) // memory that Go does not manage
	return &Exposed{Memory: unsafe.Slice((*byte)(p), m.Bytes), Method: method, e: e}, nil
}

var errExposeClosed = fmt.Errorf("rdma: expose memory of a GPU: %w", transport.ErrClosed)

// holdOpen is hold, and fails from close on.
func (dev *device) holdOpen() bool {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.closed {
		return false
	}
	dev.uses++
	return true
}

// adopt adds an exposure to those of the process. close ends it, and adopt fails from then on.
func (dev *device) adopt(e *exposure) bool {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.closed {
		return false
	}
	exposures.add(e)
	return true
}

// registerDevice registers memory by the first method that succeeds.
func registerDevice(by registrar, m DeviceMemory) (mr *verbs.MR, method string, err error) {
	direct := func() (*verbs.MR, error) {
		if m.DMABuf == nil {
			return nil, errors.New("the driver of the GPU does not support it")
		}
		fd, offset, err := m.DMABuf()
		if err != nil {
			return nil, err
		}
		defer syscall.Close(fd)
		return by.RegisterDMABuf(fd, uintptr(offset), m.Address, m.Bytes, localAccess)
	}
	mr, errDirect := direct()
	if errDirect == nil {
		return mr, MethodDMABuf, nil
	}
	mr, errPeer := by.RegisterAddress(m.Address, m.Bytes, localAccess)
	if errPeer == nil {
		return mr, MethodPeerMemory, nil
	}
	return nil, "", fmt.Errorf("%w: %s: %w; %s: %w (the kernel module nvidia_peermem may be missing)", ErrStaging, MethodDMABuf, errDirect, MethodPeerMemory, errPeer)
}

// Close ends the registration when no Conn uses it anymore. Deregister registrations of Memory before.
func (x *Exposed) Close() error {
	if !exposures.remove(x.e) {
		return fmt.Errorf("rdma: exposed memory: %w", transport.ErrClosed)
	}
	return x.e.close()
}

// close ends the registration with its last use, and the use of the device by the exposure. It is called once.
func (e *exposure) close() error {
	defer e.dev.letGo()
	e.dev.mu.Lock()
	defer e.dev.mu.Unlock()
	e.c.gone = true
	if e.c.uses == 0 {
		return e.c.mr.Close()
	}
	return nil
}

// closeAll closes the exposures of a device.
func (x *exposed) closeAll(dev *device) {
	x.mu.Lock()
	var of []*exposure
	for _, e := range x.list {
		if e.dev == dev {
			of = append(of, e)
		}
	}
	x.mu.Unlock()
	for _, e := range of {
		if x.remove(e) {
			_ = e.close()
		}
	}
}

// An exposure is the registration of a range of memory of a GPU. It uses the device until close.
type exposure struct {
	dev      *device
	c        *cached
	from, to uintptr
}

// exposed are all exposures of the process.
type exposed struct {
	count atomic.Int32
	mu    sync.Mutex
	list  []*exposure
}

var exposures exposed

func (x *exposed) add(e *exposure) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, e)
	x.count.Add(1)
}

func (x *exposed) remove(e *exposure) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, other := range x.list {
		if other == e {
			x.list = append(x.list[:i], x.list[i+1:]...)
			x.count.Add(-1)
			return true
		}
	}
	return false
}

// find returns the exposure of memory for a device, or for any device if dev is nil.
func (x *exposed) find(dev *device, memory []byte) *exposure {
	if x.count.Load() == 0 || len(memory) == 0 {
		return nil
	}
	from := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.list {
		if (dev == nil || e.dev == dev) && from >= e.from && from+uintptr(len(memory)) <= e.to {
			return e
		}
	}
	return nil
}

// use returns a region of the exposure. It fails from close on.
func (e *exposure) use() (*region, error) {
	e.dev.mu.Lock()
	defer e.dev.mu.Unlock()
	if e.c.gone {
		return nil, fmt.Errorf("rdma: exposed memory: %w", transport.ErrClosed)
	}
	e.c.uses++
	e.dev.uses++
	return &region{dev: e.dev, mr: e.c.mr, cached: e.c}, nil
}

// DiagnoseDevice writes how the RDMA device that cfg chooses accesses memory of a GPU, which it tries. Name is the name of
// the GPU. Without an RDMA device it writes nothing.
func DiagnoseDevice(w io.Writer, cfg Config, name string, m DeviceMemory) {
	dev, err := openDevice(cfg)
	if err != nil {
		return
	}
	defer dev.close()
	x, err := expose(dev, dev.pd, m)
	if err != nil {
		fmt.Fprintf(w, "%s with %s: staging through memory of the host: %v\n", name, dev.d.Name, err)
		return
	}
	fmt.Fprintf(w, "%s with %s: %s (GPUDirect)\n", name, dev.d.Name, x.Method)
	_ = x.Close()
}
