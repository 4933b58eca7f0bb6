package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/dl"
)

// A holder stops a stream, or lets it continue.
type holder func(s *stream, on bool) error

// A control is the state of the methods Hold and FailCopy of a Device, for package devicetest.
type control struct {
	hold holder

	mu       sync.Mutex
	held     int
	streams  []*stream
	copies   int
	failures map[int]error
}

var controls sync.Map // of *Device

// Controlled lets a test hold the streams of a device and fail its copies. Without a fake, the device is of
// the driver of the machine.
func Controlled(tb testing.TB, d *Device, fake *cudafake.Fake) *Device {
	tb.Helper()
	c := &control{failures: make(map[int]error)}
	if fake != nil {
		c.hold = func(s *stream, on bool) error { fake.Hold(s.handle, on); return nil }
	} else {
		var err error
		if c.hold, err = d.gate(); err != nil {
			tb.Fatal(err)
		}
	}
	controls.Store(d, c)
	d.hooks.copy = func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.copies++
		return c.failures[c.copies]
	}
	d.hooks.stream = func(s *stream) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.streams = append(c.streams, s)
		if c.held > 0 {
			c.set(s, true)
		}
	}
	return d
}

// set stops a stream, or lets it continue. c.mu is held.
func (c *control) set(s *stream, on bool) {
	if err := c.hold(s, on); err != nil {
		panic(err) // Hold has no error
	}
}

// gate returns a holder for a driver of CUDA: a held stream waits for a number in locked memory.
func (d *Device) gate() (holder, error) {
	lib, err := dl.Open(d.cfg.Library)
	if err != nil {
		return nil, err
	}
	wait, err := lib.Symbol("cuStreamWaitValue32_v2")
	if err != nil {
		return nil, err
	}
	var mem uintptr
	err = d.do(context.Background(), "cuMemHostAlloc", func() (err error) {
		mem, err = d.drv.MemHostAlloc(4)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	opened := (*atomic.Uint32)(unsafe.Pointer(&cudadriver.Memory(mem, 4)[0])) // times that all streams were let continue
	opened.Store(0)
	var closed uint32 // times that streams were stopped
	const greaterOrEqual = 0
	return func(s *stream, on bool) error {
		if !on {
			opened.Store(closed)
			return nil
		}
		d.mu.Lock()
		gone := s.closed
		d.mu.Unlock()
		if gone {
			return nil
		}
		closed = opened.Load() + 1
		return d.do(context.Background(), "cuStreamWaitValue32", func() error {
			if r, _, _ := purego.SyscallN(wait, uintptr(s.handle), mem, uintptr(closed), greaterOrEqual); r != 0 {
				return fmt.Errorf("cuStreamWaitValue32: %d", r)
			}
			return nil
		}, nil)
	}, nil
}

func controlOf(d *Device) *control {
	c, _ := controls.Load(d)
	return c.(*control)
}

// Hold implements devicetest.Holder.
func (d *Device) Hold() (release func()) {
	c := controlOf(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	for _, s := range c.streams {
		c.set(s, true)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.held--; c.held == 0 {
			for _, s := range c.streams {
				c.set(s, false)
			}
		}
	})
}

// FailCopy implements devicetest.Failer.
func (d *Device) FailCopy(n int, err error) {
	c := controlOf(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[c.copies+n] = err
}

// Unmapped returns a buffer of memory that the driver has unmapped: a kernel that accesses it has a fault.
func (d *Device) Unmapped(bytes int) (device.Buffer, error) {
	var p cudadriver.Ptr
	err := d.do(context.Background(), "cuMemAlloc", func() (err error) {
		p, err = d.drv.MemAlloc(bytes)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	b, of := d.Of(uintptr(p), bytes)
	err = d.do(context.Background(), "cuMemFree", func() error { return d.drv.MemFree(p) }, nil)
	return b, errors.Join(of, err)
}

// Copies returns the time of n copies between a buffer and locked memory of the host by the driver alone.
func (d *Device) Copies(b device.Buffer, n int, in bool) (took time.Duration, err error) {
	const limit = time.Minute
	err = d.do(context.Background(), "copies", func() error {
		host, err := d.drv.MemHostAlloc(b.Len())
		if err != nil {
			return err
		}
		defer func() { _ = d.drv.MemFreeHost(host) }()
		s, err := d.drv.StreamCreate()
		if err != nil {
			return err
		}
		defer func() { _ = d.drv.StreamDestroy(s) }()
		e, err := d.drv.EventCreate()
		if err != nil {
			return err
		}
		defer func() { _ = d.drv.EventDestroy(e) }()
		start, addr := time.Now(), cudadriver.Ptr(b.(*buffer).addr)
		for range n {
			if in {
				err = d.drv.MemcpyHtoDAsync(addr, host, b.Len(), s)
			} else {
				err = d.drv.MemcpyDtoHAsync(host, addr, b.Len(), s)
			}
			if err != nil {
				return err
			}
		}
		if err := d.drv.EventRecord(e, s); err != nil {
			return err
		}
		for {
			done, err := d.drv.EventQuery(e)
			took = time.Since(start)
			switch {
			case err != nil || done:
				return err
			case took > limit:
				return fmt.Errorf("%d copies take longer than %v", n, limit)
			}
		}
	}, nil)
	return took, err
}

// Chunk takes a chunk of CopyIn and CopyOut, and returns it.
func (d *Device) Chunk(ctx context.Context) error {
	c, err := d.chunk(ctx, 1)
	if err == nil {
		d.chunks <- c
	}
	return err
}
