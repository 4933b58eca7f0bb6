package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

// A pool allocates memory of the GPU, or locked memory of the host. Its methods run on the thread of the executor. Device.mu is not
// held: the driver may wait for the work of the GPU, or hang, and other calls must not wait for that.
type pool struct {
	what              string
	limit, cacheLimit int64
	alloc             func(bytes int) (uintptr, error)
	release           func(addr uintptr) error

	used   int64             // bytes of allocated memory
	cached int64             // bytes of free
	free   map[int][]uintptr // by size
	all    map[uintptr]int   // used memory, and its size

	// draining is the part of used that is freed, but not returned, since queued work may use it. Device.mu guards it.
	draining int64
}

// get returns memory of a size, or 0 if the limit does not allow it.
func (p *pool) get(size int) (uintptr, error) {
	if list := p.free[size]; len(list) > 0 {
		addr := list[len(list)-1]
		p.free[size] = list[:len(list)-1]
		p.cached -= int64(size)
		p.use(addr, size)
		return addr, nil
	}
	if int64(size) > p.limit-p.used {
		return 0, nil
	}
	if int64(size) > p.limit-p.used-p.cached {
		p.drop(false)
	}
	addr, err := p.alloc(size)
	if isOutOfMemory(err) && p.cached > 0 {
		p.drop(false)
		addr, err = p.alloc(size)
	}
	if isOutOfMemory(err) {
		return 0, nil
	}
	if err == nil {
		p.use(addr, size)
	}
	return addr, err
}

func (p *pool) use(addr uintptr, size int) {
	p.used += int64(size)
	if p.all == nil {
		p.all = make(map[uintptr]int)
	}
	p.all[addr] = size
}

// put returns memory. Its error does not matter: the memory is lost, and the next call fails as well.
func (p *pool) put(addr uintptr, size int) {
	p.used -= int64(size)
	delete(p.all, addr)
	if p.cached+int64(size) > p.cacheLimit {
		_ = p.release(addr)
		return
	}
	if p.free == nil {
		p.free = make(map[int][]uintptr)
	}
	p.free[size] = append(p.free[size], addr)
	p.cached += int64(size)
}

// drop returns free memory to the driver, and with all set also memory that is in use.
func (p *pool) drop(all bool) {
	for _, list := range p.free {
		for _, addr := range list {
			_ = p.release(addr)
		}
	}
	clear(p.free)
	p.cached = 0
	if all {
		for addr := range p.all {
			_ = p.release(addr)
		}
		clear(p.all)
		p.used = 0
	}
}

func isOutOfMemory(err error) bool {
	e, ok := errors.AsType[*cudadriver.Error](err)
	return ok && e.Code == cudadriver.ErrorOutOfMemory
}

// sizeOf returns the size of the memory for a buffer or staging, so that freed memory fits others.
func sizeOf(bytes int) int {
	const unit, page = 512, 1 << 20
	switch {
	case bytes <= unit:
		return unit
	case bytes <= page:
		return 1 << bits.Len(uint(bytes-1))
	}
	return (bytes + page - 1) / page * page
}

// A memory is a buffer or a staging. Of a zero length it has no address.
type memory struct {
	d     *Device
	pool  *pool
	addr  uintptr
	bytes int
	size  int // of the allocation; 0 if the device does not own it

	// Guarded by d.mu.
	freed   bool
	users   int      // pieces of work that are not done
	release func()   // on the executor, in place of the pool; or nil
	loan    *loan    // of the memory by another device; or nil
	ends    []func() // of atFree
}

func (m *memory) Device() device.Device { return m.d }

func (m *memory) Len() int { return m.bytes }

func (m *memory) Free() error {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	switch {
	case m.d.closed:
		return m.d.errClosed("device")
	case m.freed:
		return m.d.errFreed(m.pool.what, m.bytes)
	}
	m.freed = true
	if m.loan != nil {
		m.loan.ended.Store(true)
	}
	m.pool.draining += int64(m.size)
	m.endIfUnused()
	return nil
}

// unuse notes that a piece of work is done. d.mu is held.
func (m *memory) unuse() {
	m.users--
	m.endIfUnused()
}

// endIfUnused returns the memory if it is freed and not in use. d.mu is held.
func (m *memory) endIfUnused() {
	if !m.freed || m.users > 0 {
		return
	}
	d := m.d
	ends := m.takeEnds()
	d.x.async("cuMemFree", func() {
		for _, f := range ends {
			f()
		}
		if d.finished {
			return
		}
		if m.release != nil {
			m.release()
		} else if m.size > 0 {
			m.pool.put(m.addr, m.size)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.mapped, m)
		m.pool.draining -= int64(m.size)
		close(d.freed)
		d.freed = make(chan struct{})
	})
}

// reserve allocates memory. It waits for memory that is freed and still in use.
func (d *Device) reserve(ctx context.Context, p *pool, bytes int, m *memory) error {
	if bytes < 0 {
		return &device.LengthError{Device: d.name, What: p.what, Unit: "bytes", Got: bytes, Want: -1}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	*m = memory{d: d, pool: p, bytes: bytes}
	if bytes > 0 && int64(bytes) <= p.limit {
		m.size = int(min(int64(sizeOf(bytes)), p.limit))
	}
	for {
		var wait <-chan struct{}
		err := d.do(ctx, "allocation of a "+p.what, func() (err error) {
			wait, err = d.take(p, m)
			return err
		}, func() { d.giveUp(m) })
		if err != nil || wait == nil {
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return err
			}
			if _, ok := errors.AsType[*device.MemoryError](err); ok {
				return err
			}
			return d.named(err)
		}
		if err := d.awaitFree(ctx, wait); err != nil {
			return err
		}
	}
}

// awaitFree waits until memory becomes free.
func (d *Device) awaitFree(ctx context.Context, freed <-chan struct{}) error {
	d.awaited.Add(1)
	defer d.awaited.Add(-1)
	d.x.nudge()
	select {
	case <-freed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.x.failed:
		return d.named(d.x.err)
	}
}

// take allocates memory, or returns a channel that is closed when there is more. It runs on the thread of
// the executor.
func (d *Device) take(p *pool, m *memory) (wait <-chan struct{}, err error) {
	if err := d.check(); err != nil || m.bytes == 0 {
		return nil, err
	}
	if m.size > 0 {
		m.addr, err = p.get(m.size)
		if m.addr != 0 || err != nil {
			return nil, err
		}
		if wait = d.draining(p); wait != nil {
			return wait, nil
		}
	}
	e := &device.MemoryError{Device: d.name, What: p.what, Requested: m.bytes, Free: max(p.limit-p.used, 0), Total: p.limit}
	if free, _, err := d.drv.MemGetInfo(); err == nil && p == &d.memory {
		e.Free = min(e.Free, free)
	}
	return nil, e
}

// draining returns a channel that is closed when memory of a pool becomes free, or nil if none will.
func (d *Device) draining(p *pool) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.draining == 0 {
		return nil
	}
	return d.freed
}

// giveUp returns memory after its caller has stopped waiting. It runs on the thread of the executor.
func (d *Device) giveUp(m *memory) {
	if m.addr != 0 && !d.finished {
		m.pool.put(m.addr, m.size)
	}
}

// A buffer is memory of the GPU.
type buffer struct{ memory }

// Alloc returns a buffer of a length in bytes.
func (d *Device) Alloc(ctx context.Context, bytes int) (device.Buffer, error) {
	b := new(buffer)
	if err := d.reserve(ctx, &d.memory, bytes, &b.memory); err != nil {
		return nil, err
	}
	return b, nil
}

// Of returns a buffer of memory of this GPU that another library has allocated, and which remains with
// that library. Free ends the use of the buffer.
func (d *Device) Of(address uintptr, bytes int) (device.Buffer, error) {
	if bytes < 0 {
		return nil, &device.LengthError{Device: d.name, What: "buffer", Unit: "bytes", Got: bytes, Want: -1}
	}
	if bytes > 0 {
		err := d.do(context.Background(), "cuMemGetAddressRange", func() error {
			base, n, err := d.drv.MemGetAddressRange(cudadriver.Ptr(address))
			if behind := address - uintptr(base); err == nil && (behind > uintptr(n) || uintptr(n)-behind < uintptr(bytes)) {
				err = fmt.Errorf("%d bytes at %#x are not inside an allocation of %d bytes at %#x", bytes, address, n, base)
			}
			return err
		}, nil)
		if err != nil {
			return nil, d.named(err)
		}
	}
	return &buffer{memory{d: d, pool: &d.memory, addr: address, bytes: bytes}}, nil
}

// Pointer returns the address of a buffer in the memory of the GPU, for other libraries. It is 0 if the
// length is 0. The address is valid until the buffer is freed.
func Pointer(b device.Buffer) (uintptr, error) {
	own, ok := b.(*buffer)
	if !ok {
		return 0, fmt.Errorf("the buffer is of device %s, not of a GPU", b.Device().Name())
	}
	own.d.mu.Lock()
	defer own.d.mu.Unlock()
	if own.freed {
		return 0, own.d.errFreed("buffer", own.bytes)
	}
	return own.addr, nil
}

// A staging is locked memory of the host.
type staging struct {
	memory
	mem []byte

	// Guarded by d.mu.
	queue []*work // work with the memory that is not done
	err   error   // of the first work that failed
}

// Stage returns staging memory, which the driver has locked, so that the GPU copies it without the
// processor.
func (d *Device) Stage(ctx context.Context, bytes int) (device.Staging, error) {
	s, err := d.stage(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (d *Device) stage(ctx context.Context, bytes int) (*staging, error) {
	s := new(staging)
	if err := d.reserve(ctx, &d.staging, bytes, &s.memory); err != nil {
		return nil, err
	}
	if bytes > 0 {
		s.mem = cudadriver.Memory(s.addr, bytes)
	}
	return s, nil
}

func (s *staging) Bytes(ctx context.Context) ([]byte, error) {
	for {
		s.d.mu.Lock()
		if err := s.check(); err != nil {
			s.d.mu.Unlock()
			return nil, err
		}
		if len(s.queue) == 0 {
			s.d.mu.Unlock()
			return s.mem, nil
		}
		w := s.queue[0]
		s.d.mu.Unlock()
		if err := s.d.await(ctx, w); err != nil {
			return nil, err
		}
	}
}

// check returns an error if the memory must not be used. d.mu is held.
func (s *staging) check() error {
	switch {
	case s.d.closed:
		return s.d.errClosed("device")
	case s.freed:
		return s.d.errFreed("staging", s.bytes)
	}
	return s.err
}
