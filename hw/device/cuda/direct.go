package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

var _ device.Direct = (*Device)(nil)

// direct says how a GPU lets network cards access its memory.
type direct struct {
	err     error // why it does not
	flushes bool  // kernels see writes of network cards only after a flush
}

// directOf asks the driver for the accesses of network cards to a GPU.
func directOf(d *cudadriver.Driver, dev cudadriver.Device) direct {
	var values [3]int
	for i, a := range []int{cudadriver.AttributeDirectRDMA, cudadriver.AttributeWritesOrdering, cudadriver.AttributeFlushOptions} {
		var err error
		if values[i], err = d.DeviceGetAttribute(a, dev); err != nil {
			return direct{err: fmt.Errorf("the driver does not know GPUDirect RDMA (CUDA 11.3 does): %w", err)}
		}
	}
	supported, ordering, options := values[0] != 0, values[1], values[2]
	switch {
	case !supported:
		return direct{err: errors.New("the GPU does not support GPUDirect RDMA")}
	case ordering >= cudadriver.OrderedForOwner:
		return direct{}
	case options&cudadriver.FlushByHost == 0:
		return direct{err: errors.New("neither the GPU nor the driver orders writes of network cards before kernels")}
	}
	return direct{flushes: true}
}

// Direct implements [device.Direct]. Memory of [Device.Of] must stay allocated until its buffer is freed and all calls that
// have used it have returned.
func (d *Device) Direct(b device.Buffer) (*device.DirectMemory, error) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own.d != d:
		return nil, &device.ForeignError{Device: d.name, Owner: b.Device().Name(), What: "buffer"}
	case own.bytes == 0:
		return nil, &device.LengthError{Device: d.name, What: "buffer", Unit: "bytes", Want: -1}
	case d.info.direct.err != nil:
		return nil, d.named(d.info.direct.err)
	}
	address, err := Pointer(b)
	if err != nil {
		return nil, err
	}
	m := &device.DirectMemory{Address: address, Bytes: own.bytes, Hold: own.holdDirect, AtFree: own.atFree}
	if d.info.DMABuf {
		m.DMABuf = func() (int, int64, error) { return DMABuf(b) }
	}
	return m, nil
}

// holdDirect is DirectMemory.Hold. Close waits for release.
func (b *buffer) holdDirect() (release func(), err error) {
	d := b.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := b.holdLocked(); err != nil {
		return nil, err
	}
	d.held++ // With the same lock, so that Close waits for each holder that has found the device open.
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held--
		if d.held == 0 {
			close(d.unheld)
			d.unheld = make(chan struct{})
		}
		b.unuse()
	}, nil
}

// atFree is DirectMemory.AtFree. It calls f at once if the end of the memory has begun.
func (b *buffer) atFree(f func()) {
	d := b.d
	d.mu.Lock()
	if d.ending || b.freed && b.users == 0 {
		d.mu.Unlock()
		f()
		return
	}
	defer d.mu.Unlock()
	b.ends = append(b.ends, f)
	if d.exposed == nil {
		d.exposed = make(map[*memory]struct{})
	}
	d.exposed[&b.memory] = struct{}{}
}

// takeEnds returns the functions of atFree, once. d.mu is held.
func (m *memory) takeEnds() []func() {
	list := m.ends
	m.ends = nil
	delete(m.d.exposed, m)
	return list
}

// FlushWrites implements [device.Direct].
func (d *Device) FlushWrites(ctx context.Context) error {
	if !d.info.direct.flushes {
		return nil
	}
	return d.named(d.do(ctx, "cuFlushGPUDirectRDMAWrites", func() error {
		if err := d.check(); err != nil {
			return err
		}
		return d.drv.FlushDirectWrites()
	}, nil))
}

// awaitUnheld waits until no network card accesses memory of a device that is closed.
func (d *Device) awaitUnheld() {
	for {
		d.mu.Lock()
		held, unheld := d.held, d.unheld
		d.mu.Unlock()
		if held == 0 {
			return
		}
		<-unheld
	}
}

// endAll calls the functions of atFree of all buffers that are left. It runs on the thread of the executor.
func (d *Device) endAll() {
	d.mu.Lock()
	d.ending = true
	var list []func()
	for m := range d.exposed {
		list = append(list, m.takeEnds()...)
	}
	d.mu.Unlock()
	for _, f := range list {
		f()
	}
}
