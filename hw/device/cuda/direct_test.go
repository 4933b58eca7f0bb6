package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// TestDirect: memory that network cards access is reused only after the last of them has released it, and its registration ends
// before. Close waits for them.
func TestDirect(t *testing.T) {
	fake := cudafake.New(t)
	fake.Direct(true)
	defer fake.Direct(false)
	d, err := cuda.Open(0, cuda.Config{Library: fake.Path})
	must(t, err)
	b, err := d.Alloc(t.Context(), 1<<20)
	must(t, err)
	m, err := d.Direct(b)
	must(t, err)
	address, err := cuda.Pointer(b)
	must(t, err)
	if m.Address != address || m.Bytes != 1<<20 || m.DMABuf == nil {
		t.Errorf("the memory is %+v, want %d bytes at %#x with a dma-buf", m, 1<<20, address)
	}
	before := fake.Calls("cuFlushGPUDirectRDMAWrites")
	must(t, d.FlushWrites(t.Context()))
	if n := fake.Calls("cuFlushGPUDirectRDMAWrites") - before; n != 1 {
		t.Errorf("FlushWrites has called the driver %d times, want once", n)
	}

	ended := make(chan struct{}, 4)
	m.AtFree(func() { ended <- struct{}{} })
	release, err := m.Hold()
	must(t, err)
	must(t, b.Free())
	other, err := d.Alloc(t.Context(), 1<<20)
	must(t, err)
	if p, err := cuda.Pointer(other); err != nil || p == address {
		t.Errorf("memory at %#x is reused while a network card may access it (%v)", p, err)
	}
	if len(ended) != 0 {
		t.Error("the registration has ended while a network card may access the memory")
	}
	if _, err := m.Hold(); !errors.Is(err, device.ErrFreed) {
		t.Errorf("Hold of freed memory: %v, want ErrFreed", err)
	}
	release()
	<-ended

	m, err = d.Direct(other)
	must(t, err)
	m.AtFree(func() { ended <- struct{}{} })
	release, err = m.Hold()
	must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	for { // Close has begun.
		if _, err := d.Alloc(t.Context(), 1); errors.Is(err, device.ErrClosed) {
			break
		}
	}
	if len(closed) != 0 || len(ended) != 0 {
		t.Error("Close does not wait for the network card")
	}
	release()
	must(t, <-closed)
	if len(ended) != 1 {
		t.Error("Close has not ended the registration")
	}
}

// TestDirectRefused: Direct names the reason if network cards cannot access a GPU, or if its driver fails.
func TestDirectRefused(t *testing.T) {
	fake := cudafake.New(t)
	for _, test := range []struct {
		want string
		fail bool
	}{{"does not support GPUDirect RDMA", false}, {"the driver does not know GPUDirect RDMA", true}} {
		if test.fail { // Open asks for two other attributes, and dma-buf, before those of GPUDirect.
			fake.Fail("cuDeviceGetAttribute", 4, cudadriver.ErrorNoDevice)
		}
		d, err := cuda.Open(0, cuda.Config{Library: fake.Path})
		must(t, err)
		b, err := d.Alloc(t.Context(), 4096)
		must(t, err)
		if _, err := d.Direct(b); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Direct: %v, want %q", err, test.want)
		}
		must(t, d.Close())
	}
}
