package cuda

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

// CopyPeer queues a copy from src, a region of any GPU of this process, to dst, of the GPU of the stream s.
// The regions have the same shape, as for Copy. The copy does not wait for work of the other GPU: wait
// for the stream that writes src first. The GPUs copy directly where they can, and through the host
// otherwise.
func CopyPeer(s device.Stream, dst, src device.Region) error {
	own, ok := s.(*stream)
	if !ok {
		return fmt.Errorf("the stream is of device %s, not of a GPU", s.Device().Name())
	}
	d := own.d
	from, ok := src.Buffer.(*buffer)
	switch {
	case src.Buffer == nil:
		return d.named(device.ErrNoBuffer)
	case !ok:
		return &device.ForeignError{Device: d.name, Owner: src.Buffer.Device().Name(), What: "buffer"}
	case from.d == d:
		return s.Copy(dst, src)
	}
	if _, err := device.Check(d, dst); err != nil {
		return err
	}
	if _, err := device.Check(from.d, src); err != nil {
		return err
	}
	if dst.Bytes != src.Bytes || dst.RowCount() != src.RowCount() {
		return &device.LengthError{Device: d.name, What: "src", Unit: "bytes", Got: src.Total(), Want: dst.Total()}
	}
	l, err := from.lend(d, true)
	if err != nil {
		return err
	}
	return own.add(queued{
		name: fmt.Sprintf("copy of %d bytes from %s", dst.Total(), from.d.name), buffers: []device.Buffer{dst.Buffer},
		enqueue: func() error { return own.copyPeer(dst, src) },
		// The other device has a lock of its own, which must not be taken with that of d.
		then: func() { go from.takeBack(l) },
	})
}

// A loan is the use of a buffer by another device of the process.
type loan struct {
	user     *Device
	ended    atomic.Bool   // only queued work of the user needs the buffer
	returned chan struct{} // closed when the loan is over
}

// lend marks a buffer as used by another device, until takeBack. Ended is that of the loan: true for a copy.
func (b *buffer) lend(user *Device, ended bool) (*loan, error) {
	d := b.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := b.holdLocked(); err != nil {
		return nil, err
	}
	l := &loan{user: user, returned: make(chan struct{})}
	l.ended.Store(ended)
	if d.loans == nil {
		d.loans = make(map[*loan]struct{})
	}
	d.loans[l] = struct{}{}
	return l, nil
}

// takeBack ends a loan of lend.
func (b *buffer) takeBack(l *loan) {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	delete(b.d.loans, l)
	close(l.returned)
	b.unuse()
}

// checkLoans returns an error that names a device with a buffer of Access to memory of this one. d.mu is held.
func (d *Device) checkLoans() error {
	for l := range d.loans {
		if l.user != d && !l.ended.Load() {
			return fmt.Errorf("close: the GPU %s uses memory of this one: first free the buffers of Device.Access there, or close it", l.user.name)
		}
	}
	return nil
}

// awaitLoans waits until no other device uses memory of a device that is closed. It returns an error if one hangs.
func (d *Device) awaitLoans() error {
	d.mu.Lock()
	loans := slices.Collect(maps.Keys(d.loans))
	d.mu.Unlock()
	for _, l := range loans {
		if l.user == d {
			continue // a buffer of this device ends with it
		}
		if err := l.await(); err != nil {
			return fmt.Errorf("close: the GPU %s uses memory of this one, which stays allocated: %w", l.user.name, err)
		}
	}
	return nil
}

// await waits until a loan is over: its user looks for the end of its work only while a call waits.
func (l *loan) await() error {
	l.user.awaited.Add(1)
	defer l.user.awaited.Add(-1)
	l.user.x.nudge()
	select {
	case <-l.returned:
		return nil
	case <-l.user.x.failed:
		return l.user.x.err
	}
}

// addMapped notes a buffer whose memory belongs to another device or process. It runs on the thread of the executor,
// after check.
func (d *Device) addMapped(b *buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mapped == nil {
		d.mapped = make(map[*memory]struct{})
	}
	d.mapped[&b.memory] = struct{}{}
	if b.loan != nil && d.closed {
		b.loan.ended.Store(true) // Close has begun after check
	}
}

// removeMapped reverts addMapped.
func (d *Device) removeMapped(b *buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mapped, &b.memory)
}

// holdLocked marks a buffer as used by something that is not work of a stream, until unuse. d.mu is held.
func (b *buffer) holdLocked() error {
	switch {
	case b.d.closed:
		return b.d.errClosed("device")
	case b.freed:
		return b.d.errFreed("buffer", b.bytes)
	}
	b.users++
	return nil
}

func (s *stream) copyPeer(dst, src device.Region) error {
	d, from := s.d, src.Buffer.(*buffer).d
	can, err := d.drv.DeviceCanAccessPeer(d.dev, from.dev)
	if err != nil {
		return err
	}
	if can {
		if err := d.drv.CtxEnablePeerAccess(from.ctx); err != nil {
			return err
		}
	}
	if to, f := dense(dst), dense(src); to.RowCount() == f.RowCount() {
		dst, src = to, f
	}
	for row := range dst.RowCount() {
		to := address(dst) + cudadriver.Ptr(row*dst.Stride)
		f := address(src) + cudadriver.Ptr(row*src.Stride)
		if err := d.drv.MemcpyPeerAsync(to, d.ctx, f, from.ctx, dst.Bytes, s.handle); err != nil {
			return err
		}
	}
	return nil
}

// A Shared names the memory of a buffer for other processes of the host. It is plain data: send it as it is.
type Shared struct {
	Handle        [64]byte // of the driver
	Offset, Bytes int64    // in the allocation of the handle
}

// Share returns the name of the memory of a buffer of at least one byte, for [Device.Import] in another
// process. Do not free the buffer before the other processes have freed theirs.
func Share(b device.Buffer) (Shared, error) {
	own, ok := b.(*buffer)
	if !ok {
		return Shared{}, fmt.Errorf("the buffer is of device %s, not of a GPU", b.Device().Name())
	}
	addr, err := Pointer(b)
	if err != nil {
		return Shared{}, err
	}
	if own.bytes == 0 {
		return Shared{}, own.d.named(errors.New("a buffer without bytes cannot be shared"))
	}
	out := Shared{Bytes: int64(own.bytes)}
	err = own.d.do(context.Background(), "cuIpcGetMemHandle", func() error {
		base, _, err := own.d.drv.MemGetAddressRange(cudadriver.Ptr(addr))
		if err != nil {
			return err
		}
		out.Offset = int64(addr - uintptr(base))
		out.Handle, err = own.d.drv.IpcGetMemHandle(cudadriver.Ptr(addr))
		return err
	}, nil)
	if err != nil {
		return Shared{}, own.d.named(err)
	}
	return out, nil
}

// Import returns a buffer of memory that another process shares: of this GPU, or of one that this GPU can
// access directly. Both processes access the same memory. Free unmaps it, and so does
// [Device.Close].
func (d *Device) Import(s Shared) (device.Buffer, error) {
	if s.Bytes <= 0 || s.Offset < 0 {
		return nil, d.named(fmt.Errorf("shared memory of %d bytes at offset %d: must be positive", s.Bytes, s.Offset))
	}
	b := &buffer{memory{d: d, pool: &d.memory, bytes: int(s.Bytes)}}
	err := d.do(context.Background(), "cuIpcOpenMemHandle", func() error {
		if err := d.check(); err != nil {
			return err
		}
		base, err := d.drv.IpcOpenMemHandle(s.Handle)
		if err != nil {
			return err
		}
		_, n, err := d.drv.MemGetAddressRange(base)
		if err == nil && (s.Offset > int64(n) || s.Bytes > int64(n)-s.Offset) {
			err = fmt.Errorf("shared memory of %d bytes at offset %d: the allocation has %d bytes", s.Bytes, s.Offset, n)
		}
		if err != nil {
			_ = d.drv.IpcCloseMemHandle(base)
			return err
		}
		b.addr = uintptr(base) + uintptr(s.Offset)
		b.release = func() { _ = d.drv.IpcCloseMemHandle(base) }
		d.addMapped(b)
		return nil
	}, nil)
	if err != nil {
		return nil, d.named(err)
	}
	return b, nil
}

// DMABuf returns a file descriptor of the memory of a buffer of Alloc, for other drivers, such as those
// of RDMA, and the offset of the buffer in it. The caller closes the descriptor. It is an error if the
// driver or the kernel does not support it: see [Info].
func DMABuf(b device.Buffer) (fd int, offset int64, err error) {
	own, ok := b.(*buffer)
	if !ok {
		return -1, 0, fmt.Errorf("the buffer is of device %s, not of a GPU", b.Device().Name())
	}
	addr, err := Pointer(b)
	if err != nil {
		return -1, 0, err
	}
	if own.bytes == 0 {
		return -1, 0, own.d.named(errors.New("a buffer without bytes has no memory"))
	}
	const page = 1 << 16 // the longest page of the hosts that GPUs are in
	err = own.d.do(context.Background(), "cuMemGetHandleForAddressRange", func() error {
		base, n, err := own.d.drv.MemGetAddressRange(cudadriver.Ptr(addr))
		if err != nil {
			return err
		}
		first := addr &^ (page - 1)
		end := min((addr+uintptr(own.bytes)+page-1)&^(page-1), uintptr(base)+uintptr(n))
		if first < uintptr(base) {
			first = uintptr(base)
		}
		offset = int64(addr - first)
		fd, err = own.d.drv.DMABuf(cudadriver.Ptr(first), int(end-first))
		return err
	}, nil)
	return fd, offset, own.d.named(err)
}
