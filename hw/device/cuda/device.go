package cuda

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

// A Device is a GPU. Its name is "cuda:" and its number.
type Device struct {
	name string
	cfg  Config
	drv  *cudadriver.Driver
	dev  cudadriver.Device
	ctx  cudadriver.Context
	info Info
	x    *executor

	maxPitch int // the largest distance of rows in a copy
	blocks   int // of a kernel, to use the whole GPU

	// Used on the thread of the executor only.
	events  []cudadriver.Event // that mark nothing
	modules map[string]*module
	memory  pool
	staging pool
	// finished says that all memory has been returned to the driver.
	finished bool

	copying sync.Mutex    // guards copies
	copies  *stream       // for CopyIn and CopyOut; may be nil
	chunks  chan *staging // for CopyIn and CopyOut
	awaited atomic.Int64  // calls that wait for queued work
	hooks   hooks         // of tests
	busy    []*stream     // used by poll

	mu     sync.Mutex
	closed bool
	// ending says that endAll has taken the functions of atFree.
	ending  bool
	err     error                // the GPU has failed
	streams []*stream            // with queued work
	freed   chan struct{}        // closed and replaced when memory becomes free
	held    int                  // calls during which network cards access memory
	unheld  chan struct{}        // closed and replaced when held becomes 0
	exposed map[*memory]struct{} // memory with functions of atFree
	loans   map[*loan]struct{}   // of memory of this device to others
	mapped  map[*memory]struct{} // memory of other devices and processes
	open    map[*stream]struct{} // streams that are not closed, without those of other libraries
}

// hooks let tests fail copies, and hold streams. They are set before the first use.
type hooks struct {
	copy   func() error
	stream func(*stream)
}

var _ device.Device = (*Device)(nil)

// Open opens the GPU with a number, from 0: see [List]. Several Devices of one GPU are different devices
// of package device, with buffers of their own.
func Open(number int, cfg Config) (*Device, error) {
	cfg = cfg.withDefaults()
	d := &Device{
		name: fmt.Sprintf("cuda:%d", number), cfg: cfg,
		modules: make(map[string]*module), freed: make(chan struct{}), unheld: make(chan struct{}), chunks: make(chan *staging, chunkCount),
		open: make(map[*stream]struct{}),
	}
	fail := func(err error) (*Device, error) { return nil, fmt.Errorf("device %s: %w", d.name, err) }
	var err error
	if d.x, err = newExecutor(cfg.CallTimeout, func() error { return d.initialize(number) }, d.leave, d.poll); err != nil {
		return fail(err)
	}
	for range chunkCount {
		d.chunks <- nil
	}
	return d, nil
}

// initialize runs on the thread of the executor.
func (d *Device) initialize(number int) (err error) {
	if d.drv, err = driverOf(d.cfg.Library); err != nil {
		return err
	}
	n, err := d.drv.DeviceGetCount()
	if err != nil {
		return err
	}
	if number < 0 || number >= n {
		return fmt.Errorf("no such GPU: this process may use %d, numbered from 0 (see CUDA_VISIBLE_DEVICES)", n)
	}
	if d.dev, err = d.drv.DeviceGet(number); err != nil {
		return err
	}
	if d.info, err = describe(d.drv, d.dev); err != nil {
		return err
	}
	if d.maxPitch, err = d.drv.DeviceGetAttribute(cudadriver.AttributeMaxPitch, d.dev); err != nil {
		return err
	}
	processors, err := d.drv.DeviceGetAttribute(cudadriver.AttributeMultiprocessors, d.dev)
	if err != nil {
		return err
	}
	d.blocks = 8 * processors
	if d.ctx, err = d.drv.DevicePrimaryCtxRetain(d.dev); err != nil {
		return err
	}
	if err = d.drv.CtxSetCurrent(d.ctx); err != nil {
		_ = d.drv.DevicePrimaryCtxRelease(d.dev)
		return err
	}
	d.memory = pool{what: "buffer", limit: d.info.Memory, cacheLimit: d.cfg.Cache, alloc: d.allocDevice, release: d.freeDevice}
	if d.cfg.Memory > 0 {
		d.memory.limit = min(d.cfg.Memory, d.info.Memory)
	}
	d.staging = pool{what: "staging", limit: d.cfg.StagingMemory, cacheLimit: d.cfg.StagingMemory, alloc: d.drv.MemHostAlloc, release: d.drv.MemFreeHost}
	return nil
}

// leave reverts initialize.
func (d *Device) leave() {
	_ = d.drv.CtxSetCurrent(0)
	_ = d.drv.DevicePrimaryCtxRelease(d.dev)
}

func (d *Device) allocDevice(n int) (uintptr, error) {
	p, err := d.drv.MemAlloc(n)
	return uintptr(p), err
}

func (d *Device) freeDevice(p uintptr) error { return d.drv.MemFree(cudadriver.Ptr(p)) }

// Name returns "cuda:0" for the first GPU.
func (d *Device) Name() string { return d.name }

// Info describes the GPU.
func (d *Device) Info() Info { return d.info }

// do runs a function on the thread of the device. Its error does not name the device. See executor.do.
func (d *Device) do(ctx context.Context, what string, do func() error, undo func()) error {
	return d.x.do(ctx, what, errClosed, do, undo)
}

// Do calls a function on the thread that has the context of the GPU, for other libraries whose calls need it.
// No other work of the Device is done meanwhile, so the function must not wait for work of the GPU. If
// ctx ends first, Do returns its cause, and the function still runs. Errors name the call by the second argument.
func (d *Device) Do(ctx context.Context, what string, f func() error) error {
	return d.do(ctx, what, f, nil)
}

var errClosed = fmt.Errorf("device: %w", device.ErrClosed)

// named adds the name of the device to an error.
func (d *Device) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("device %s: %w", d.name, err)
}

func (d *Device) errFreed(what string, bytes int) error {
	return fmt.Errorf("device %s: %s of %d bytes: %w", d.name, what, bytes, device.ErrFreed)
}

func (d *Device) errClosed(what string) error {
	return fmt.Errorf("device %s: %s: %w", d.name, what, device.ErrClosed)
}

// Close releases the GPU with all its buffers and streams. It waits for queued work, for calls during which network
// cards access memory of the GPU, and for copies by other GPUs ([CopyPeer]). Further calls fail with device.ErrClosed.
//
// If another GPU of the process has a buffer of [Device.Access] to memory of this one, Close returns an error that names that
// GPU, and the Device stays open. If a call of the driver hangs, also on another GPU that uses memory of this one, Close
// returns its error, and the memory stays allocated.
//
// Staging memory that is not freed stays valid for the caller, and the context of the GPU remains for it.
// Streams of StreamOf and memory of Of remain with their owners.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return d.errClosed("device")
	}
	if err := d.checkLoans(); err != nil {
		d.mu.Unlock()
		return d.named(err)
	}
	d.closed = true
	for m := range d.mapped {
		if m.loan != nil {
			m.loan.ended.Store(true)
		}
	}
	close(d.freed)
	d.freed = make(chan struct{})
	d.mu.Unlock()
	// Posted work is queued now.
	_ = d.do(context.Background(), "the end of calls", func() error { return nil }, nil)
	d.mu.Lock()
	queued := slices.Clone(d.streams)
	d.mu.Unlock()
	for _, s := range queued {
		d.mu.Lock()
		last := s.last
		d.mu.Unlock()
		_ = d.await(context.Background(), last)
	}
	if err := d.awaitLoans(); err != nil {
		d.x.end()
		return d.named(err)
	}
	d.awaitUnheld()
	err := d.do(context.Background(), "the end of the context", d.finish, nil)
	d.x.end()
	return d.named(err)
}

// finish returns all memory. It runs on the thread of the executor.
func (d *Device) finish() error {
	d.endAll()
	d.mu.Lock()
	open := slices.Collect(maps.Keys(d.open))
	clear(d.open)
	failed := d.err != nil
	d.mu.Unlock()
	for _, s := range open {
		if !failed {
			_ = d.drv.StreamDestroy(s.handle)
		}
	}
	d.putChunks()
	// Only stagings that callers have remain.
	d.finished = true
	for m := range d.mapped {
		m.release()
	}
	d.mu.Lock()
	clear(d.mapped)
	d.mu.Unlock()
	d.memory.drop(true)
	d.staging.drop(false)
	for _, m := range d.modules {
		_ = d.drv.ModuleUnload(m.handle)
	}
	for _, e := range d.events {
		_ = d.drv.EventDestroy(e)
	}
	if err := d.drv.CtxSetCurrent(0); err != nil {
		return err
	}
	if d.staging.used > 0 {
		return nil // releasing the context could unmap it
	}
	return d.drv.DevicePrimaryCtxRelease(d.dev)
}

// putChunks returns the chunks to the pool, without those of copies that have not returned. It runs on the thread of the executor.
func (d *Device) putChunks() {
	for {
		select {
		case c := <-d.chunks:
			if c != nil {
				d.staging.put(c.addr, c.size)
			}
		default:
			return
		}
	}
}

// poll finishes the work that is done. It reports whether work is awaited, and whether a call slept until now. It runs on
// the thread of the executor.
func (d *Device) poll() (awaited, slept bool) {
	d.mu.Lock()
	d.busy = append(d.busy[:0], d.streams...)
	d.mu.Unlock()
	left := false
	for _, s := range d.busy {
		for len(s.queue) > 0 {
			w := s.queue[0]
			done, err := d.drv.EventQuery(w.event)
			if err != nil {
				d.fail(err)
				return false, true
			}
			if !done {
				left = true
				break
			}
			d.mu.Lock()
			s.finish(w.failure)
			d.mu.Unlock()
			slept = slept || w.done.parked.Load()
		}
	}
	return left && d.awaited.Load() > 0, slept
}

// fail ends all streams, since the GPU has failed. It runs on the thread of the executor.
func (d *Device) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
	for _, s := range slices.Clone(d.streams) {
		if s.err == nil {
			s.err = &device.StreamError{Device: d.name, Work: s.queue[0].name, Err: err}
		}
		for len(s.queue) > 0 {
			s.finish(s.err)
		}
	}
}

// sticky returns the error with which the GPU has failed, or nil. The driver returns it from all calls; an
// event that marks nothing has no other error. It runs on the thread of the executor.
func (d *Device) sticky() error {
	e, err := d.event()
	if err == nil {
		_, err = d.drv.EventQuery(e)
		d.events = append(d.events, e)
	}
	return err
}

// event returns an event that marks nothing that is not done. It runs on the thread of the executor.
func (d *Device) event() (cudadriver.Event, error) {
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	return d.drv.EventCreate()
}

// errBusy ends a wait for the thread of the executor.
var errBusy = errors.New("the thread of the GPU is busy")

// await waits until work is done, and returns its error.
func (d *Device) await(ctx context.Context, w *work) error {
	if w == nil {
		return nil
	}
	if w.done.raised() {
		return w.err
	}
	if ctx.Err() != nil {
		// It may be done, and unknown here. The driver may be in a call that waits for the work of the GPU.
		const limit = time.Second
		bounded, cancel := context.WithTimeoutCause(context.Background(), limit, errBusy)
		err := d.do(bounded, polling, func() error { d.poll(); return nil }, nil)
		cancel()
		if err != nil && !errors.Is(err, errBusy) {
			return d.named(err)
		}
	}
	d.awaited.Add(1)
	defer d.awaited.Add(-1)
	d.x.nudge()
	w.done.soon()
	if w.done.raised() {
		return w.err
	}
	select {
	case <-w.done.c:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.x.failed:
		return d.named(d.x.err)
	}
}
