//go:build linux

package rdma

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// exposable returns memory in place of that of a GPU. The fake registers it by its address.
func exposable(t *testing.T) DeviceMemory {
	t.Helper()
	gpu, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(gpu) })
	return DeviceMemory{Address: uintptr(unsafe.Pointer(&gpu[0])), Bytes: len(gpu)}
}

// TestExposeAfterClose: Expose fails with ErrClosed after Close of the transport, also while a region keeps the device, and makes no object.
func TestExposeAfterClose(t *testing.T) {
	needFake(t)
	for _, kept := range []bool{false, true} {
		x := clusterOf(t, new(Counters), Config{}).Transports[0]
		var r *region
		if kept {
			var err error
			if r, err = x.(*rdma).dev.register(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		x.Close()
		objects := fake.Live()
		if _, err := Expose(x, exposable(t)); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("after Close, with a region %v: %v, want ErrClosed", kept, err)
		}
		if n := fake.Live(); n != objects {
			t.Errorf("after Close, with a region %v: Expose leaves %d objects more", kept, n-objects)
		}
		if kept {
			r.release()
		}
	}
}

// A closingRegistrar closes the device before it registers memory.
type closingRegistrar struct {
	registrar
	dev *device
}

func (c closingRegistrar) RegisterAddress(addr uintptr, n, access int) (*verbs.MR, error) {
	c.dev.close()
	return c.registrar.RegisterAddress(addr, n, access)
}

// TestCloseDuringExpose: if the device is closed while Expose registers memory, Expose ends the registration and fails.
func TestCloseDuringExpose(t *testing.T) {
	needFake(t)
	wantNoObjects(t)
	dev, err := openDevice(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := exposable(t)
	if _, err := expose(dev, closingRegistrar{dev.pd, dev}, m); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	if n := exposures.count.Load(); n != 0 {
		t.Errorf("%d exposures, want none", n)
	}
}

// TestUseAfterExposedClose: a registration that has found exposed memory fails if Close comes before its use. The memory is deregistered once.
func TestUseAfterExposedClose(t *testing.T) {
	dev := cacheOf(t, 0)
	objects := fake.Live()
	x, err := expose(dev, dev.pd, exposable(t))
	if err != nil {
		t.Fatal(err)
	}
	found := exposures.find(dev, x.Memory)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := found.use(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("region %v, error %v; want ErrClosed", r, err)
	}
	if n := fake.Live() - objects; n != 0 {
		t.Errorf("%d objects more than before, want as many", n)
	}
}

// TestExposedCloses: exposed memory is deregistered once, by the first of its Close and that of the device, and before the device is freed.
func TestExposedCloses(t *testing.T) {
	needFake(t)
	wantNoObjects(t)
	for range 200 {
		dev, x := exposeOnDevice(t)
		var all sync.WaitGroup
		all.Go(dev.close)
		all.Go(func() {
			if err := x.Close(); err != nil && !errors.Is(err, transport.ErrClosed) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if r, err := dev.register(x.Memory); err == nil {
				r.release()
			}
		})
		all.Wait()
	}
	// Close of the memory has begun when the device is closed.
	before := fake.Live()
	dev, x := exposeOnDevice(t)
	exposures.remove(x.e)
	dev.close()
	if n := fake.Live() - before; n != 3 { // the device, its protection domain and the registration
		t.Errorf("%d objects while the memory is exposed, want 3", n)
	}
	if err := x.e.close(); err != nil {
		t.Error(err)
	}
}

// TestRegisterAfterClose: a device that is closed, but still used, registers mapped memory for one use, and keeps nothing. Later
// registrations fail with ErrClosed.
func TestRegisterAfterClose(t *testing.T) {
	needFake(t)
	wantNoObjects(t)
	m, err := transport.Map(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	dev, err := openDevice(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.hold(); err != nil {
		t.Fatal(err)
	}
	dev.close()
	objects := fake.Live()
	for range 2 {
		r, err := dev.register(m.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if n := fake.Live() - objects; n != 1 {
			t.Errorf("%d registrations, want one", n)
		}
		r.release()
		if n := fake.Live() - objects; n != 0 || len(dev.cache)+len(dev.order)+dev.bytes != 0 {
			t.Errorf("%d registrations after the release, %d entries of %d bytes in the cache, want none", n, len(dev.cache), dev.bytes)
		}
	}
	dev.letGo()
	for _, memory := range [][]byte{m.Bytes(), make([]byte, 1000)} {
		if r, err := dev.register(memory); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("region %v, error %v after the last use; want ErrClosed", r, err)
		}
	}
}

// exposeOnDevice opens a device and exposes memory to it.
func exposeOnDevice(t *testing.T) (*device, *Exposed) {
	t.Helper()
	dev, err := openDevice(Config{})
	if err != nil {
		t.Fatal(err)
	}
	x, err := expose(dev, dev.pd, exposable(t))
	if err != nil {
		t.Fatal(err)
	}
	return dev, x
}
