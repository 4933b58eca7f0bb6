package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
)

// A stream is a CUstream.
type stream struct {
	d       *Device
	handle  cudadriver.Stream
	foreign bool // it belongs to another library
	shared  bool // another library may queue work; guarded by d.mu

	// queue is changed on the thread of the executor only, with d.mu held.
	queue []*work

	// Guarded by d.mu.
	last   *work // the last queued work, done or not
	closed bool
	err    error // has ended the stream
}

// work is the queued work of one call. An event marks its end.
type work struct {
	name    string
	event   cudadriver.Event
	buffers []*buffer
	staging *staging
	failure error  // of queueing a part of it
	then    func() // when it is done, with d.mu held; or nil

	done signal
	err  error // valid when done is raised
}

// NewStream returns a stream that does not wait for the default stream of CUDA.
func (d *Device) NewStream() (device.Stream, error) {
	s, err := d.newStream()
	if err != nil {
		return nil, err
	}
	if d.hooks.stream != nil {
		d.hooks.stream(s)
	}
	return s, nil
}

func (d *Device) newStream() (*stream, error) {
	s := &stream{d: d}
	err := d.do(context.Background(), "cuStreamCreate", func() (err error) {
		if err = d.check(); err == nil {
			s.handle, err = d.drv.StreamCreate()
		}
		if err == nil {
			d.mu.Lock()
			d.open[s] = struct{}{}
			d.mu.Unlock()
		}
		return err
	}, func() {
		d.mu.Lock()
		delete(d.open, s)
		d.mu.Unlock()
		_ = d.drv.StreamDestroy(s.handle)
	})
	if err != nil {
		return nil, d.named(err)
	}
	return s, nil
}

// check returns the error of a device that is closed or has failed, without its name. It runs on the
// thread of the executor.
func (d *Device) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	return d.err
}

// StreamOf returns a stream of a CUstream (which is also a cudaStream_t) of another library, which
// remains its owner. Work of both is done in queue order, and Wait waits for both. It
// must not be 0, the default stream.
func (d *Device) StreamOf(handle uintptr) (device.Stream, error) {
	if handle == 0 {
		return nil, d.named(errors.New("the default stream of CUDA cannot be used: create a stream"))
	}
	return &stream{d: d, handle: cudadriver.Stream(handle), foreign: true, shared: true}, nil
}

// Handle returns the CUstream of a stream of a GPU, for other libraries. It is valid until the stream is
// closed. From now on Wait also waits for work that they queue.
func Handle(s device.Stream) (uintptr, error) {
	own, ok := s.(*stream)
	if !ok {
		return 0, fmt.Errorf("the stream is of device %s, not of a GPU", s.Device().Name())
	}
	own.d.mu.Lock()
	own.shared = true
	own.d.mu.Unlock()
	// The driver gets all earlier work before that of the other library.
	if err := own.d.do(context.Background(), "the end of earlier calls", func() error { return nil }, nil); err != nil {
		return 0, own.d.named(err)
	}
	return uintptr(own.handle), nil
}

func (s *stream) Device() device.Device { return s.d }

// check returns an error if the stream cannot be used. d.mu is held.
func (s *stream) check() error {
	switch {
	case s.d.closed:
		return s.d.errClosed("device")
	case s.closed:
		return s.d.errClosed("stream")
	}
	return s.err
}

// finish removes the first work from the queue, with an error or nil. It runs on the thread of the
// executor, with d.mu held.
func (s *stream) finish(err error) {
	w := s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	if len(s.queue) == 0 {
		s.d.streams = slices.DeleteFunc(s.d.streams, func(t *stream) bool { return t == s })
	}
	s.d.events = append(s.d.events, w.event)
	w.end(err)
}

// end notes that work is done, or has failed. d.mu is held.
func (w *work) end(err error) {
	w.err = err
	if st := w.staging; st != nil {
		st.queue = slices.DeleteFunc(st.queue, func(other *work) bool { return other == w })
		if st.err == nil {
			st.err = err
		}
		st.unuse()
	}
	for _, b := range w.buffers {
		b.unuse()
	}
	if w.then != nil {
		w.then()
	}
	w.done.raise()
}

// queued is a call that queues work.
type queued struct {
	name    string
	copies  bool // it counts as a copy for tests
	awaited bool // the caller waits for the work, with its context: it need not wait until the driver has it
	staging device.Staging
	buffers []device.Buffer
	enqueue func() error // on the thread of the executor
	then    func()       // when the work is done or refused, with d.mu held; or nil
}

// add queues work, after the checks that need the state of the device. It does not wait until the driver has the work, unless
// another library may queue work on the stream too. An error of the driver ends the stream.
func (s *stream) add(q queued) error {
	d := s.d
	if d.x.hangs() {
		if q.then != nil {
			d.mu.Lock()
			q.then()
			d.mu.Unlock()
		}
		return d.named(d.x.err)
	}
	w := &work{name: q.name, then: q.then, done: newSignal()}
	j := &job{what: q.name, do: func() error { return s.enqueue(w, q) }, done: newSignal()}
	shared, err := s.post(w, q, j)
	if err != nil || q.awaited || !shared && !d.x.isBehind() {
		return err
	}
	if err = d.x.wait(context.Background(), j); errors.Is(err, errNotReturned) {
		return d.named(err)
	}
	return err
}

// post admits work and posts its job, in the same order as other calls. It reports whether another library uses the stream.
func (s *stream) post(w *work, q queued, j *job) (shared bool, err error) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err = s.admit(w, q); err == nil && !d.x.post(j) {
		err = d.errClosed("device")
	}
	if err != nil {
		if q.then != nil {
			q.then()
		}
		return false, err
	}
	s.last = w
	return s.shared, nil
}

// enqueue gives work to the driver. It runs on the thread of the executor.
func (s *stream) enqueue(w *work, q queued) error {
	d := s.d
	d.mu.Lock()
	if d.err != nil && s.err == nil {
		s.err = &device.StreamError{Device: d.name, Work: q.name, Err: d.err}
	}
	err := s.err
	d.mu.Unlock()
	if err == nil && q.copies && d.hooks.copy != nil {
		err = d.hooks.copy()
	}
	if err == nil {
		err = q.enqueue()
	}
	// A part of the work may be queued also after an error: the event marks its end.
	var recorded error
	if w.event, recorded = d.event(); recorded == nil {
		recorded = d.drv.EventRecord(w.event, s.handle)
	}
	if err == nil {
		err = recorded
	}
	var broken error
	if err != nil {
		if broken = d.sticky(); broken == nil {
			broken = recorded // the end of the work is unknown
		}
	}
	if broken != nil {
		d.fail(broken) // with the name of the first work that is not done
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil && s.err == nil {
		s.err = &device.StreamError{Device: d.name, Work: q.name, Err: err}
	}
	if err != nil {
		w.failure = s.err
		if w.staging != nil && w.staging.err == nil {
			w.staging.err = s.err
		}
	}
	if broken != nil {
		w.end(w.failure)
		return w.failure
	}
	if len(s.queue) == 0 {
		d.streams = append(d.streams, s)
	}
	s.queue = append(s.queue, w)
	return w.failure
}

// admit checks the stream, the staging and the buffers of work, and marks them as used. d.mu is held.
func (s *stream) admit(w *work, q queued) error {
	d := s.d
	if d.err != nil && s.err == nil {
		s.err = &device.StreamError{Device: d.name, Work: q.name, Err: d.err}
	}
	if err := s.check(); err != nil {
		return err
	}
	if q.staging != nil {
		own, ok := q.staging.(*staging)
		if !ok {
			return &device.ForeignError{Device: d.name, Owner: fmt.Sprintf("%T", q.staging), What: "staging"}
		}
		if err := own.check(); err != nil {
			return err
		}
		w.staging = own
	}
	for _, b := range q.buffers {
		own, ok := b.(*buffer)
		if !ok {
			return &device.ForeignError{Device: d.name, Owner: fmt.Sprintf("%T", b), What: "buffer"}
		}
		if own.freed {
			return d.errFreed("buffer", own.bytes)
		}
		w.buffers = append(w.buffers, own)
	}
	for _, b := range w.buffers {
		b.users++
	}
	if w.staging != nil {
		w.staging.users++
		w.staging.queue = append(w.staging.queue, w)
	}
	return nil
}

// buffersOf returns the buffers of regions.
func buffersOf(regions []device.Region) []device.Buffer {
	list := make([]device.Buffer, len(regions))
	for i, r := range regions {
		list[i] = r.Buffer
	}
	return list
}

func (s *stream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	return s.staged("StageSend", dst, at, src, false, true)
}

func (s *stream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	return s.staged("ReceiveInto", src, at, dst, true, true)
}

// staged queues a copy from staging memory to regions, or back.
func (s *stream) staged(what string, st device.Staging, at int, list []device.Region, in, copies bool) error {
	regions := slices.Clone(list)
	bytes, err := device.Check(s.d, regions...)
	if err == nil {
		err = device.CheckStaging(s.d, st, at, bytes)
	}
	if err != nil {
		return err
	}
	return s.add(queued{
		name: fmt.Sprintf("%s of %d bytes", what, bytes), copies: copies, staging: st, buffers: buffersOf(regions),
		enqueue: func() error {
			host := st.(*staging).addr + uintptr(at)
			for _, r := range regions {
				if err := s.transfer(host, r, in); err != nil {
					return err
				}
				host += uintptr(r.Total())
			}
			return nil
		},
	})
}

// address returns the address of the first byte of a region.
func address(r device.Region) cudadriver.Ptr {
	return cudadriver.Ptr(r.Buffer.(*buffer).addr + uintptr(r.Offset))
}

// transfer queues a copy between locked memory and a region.
func (s *stream) transfer(host uintptr, r device.Region, in bool) error {
	r = dense(r)
	rows, drv := r.RowCount(), s.d.drv
	p := address(r)
	copyRow := func(host uintptr, p cudadriver.Ptr) error {
		if in {
			return drv.MemcpyHtoDAsync(p, host, r.Bytes, s.handle)
		}
		return drv.MemcpyDtoHAsync(host, p, r.Bytes, s.handle)
	}
	switch {
	case rows == 0:
		return nil
	case rows == 1:
		return copyRow(host, p)
	case r.Stride > s.d.maxPitch:
		for i := range rows {
			if err := copyRow(host+uintptr(i*r.Bytes), p+cudadriver.Ptr(i*r.Stride)); err != nil {
				return err
			}
		}
		return nil
	}
	c := cudadriver.Memcpy2D{WidthInBytes: uintptr(r.Bytes), Height: uintptr(rows)}
	if in {
		c.SrcMemoryType, c.SrcHost, c.SrcPitch = cudadriver.MemoryHost, host, uintptr(r.Bytes)
		c.DstMemoryType, c.DstDevice, c.DstPitch = cudadriver.MemoryDevice, p, uintptr(r.Stride)
	} else {
		c.SrcMemoryType, c.SrcDevice, c.SrcPitch = cudadriver.MemoryDevice, p, uintptr(r.Stride)
		c.DstMemoryType, c.DstHost, c.DstPitch = cudadriver.MemoryHost, host, uintptr(r.Bytes)
	}
	return drv.Memcpy2DAsync(&c, s.handle)
}

// dense returns a region with one row if the rows have no gaps.
func dense(r device.Region) device.Region {
	if r.RowCount() > 1 && r.Stride == r.Bytes {
		r.Bytes, r.Rows = r.Total(), 1
	}
	return r
}

// Copy copies on the GPU. It copies rows by a kernel, since the driver copies only rows whose distances it
// has chosen.
func (s *stream) Copy(dst, src device.Region) error {
	if err := device.CheckPair(s.d, dst, src); err != nil {
		return err
	}
	if err := s.checkAliases(dst, src); err != nil {
		return err
	}
	return s.add(queued{
		name: fmt.Sprintf("Copy of %d bytes", dst.Total()), copies: true, buffers: []device.Buffer{dst.Buffer, src.Buffer},
		enqueue: func() error {
			if dst.RowCount() == 0 {
				return nil
			}
			if to, from := dense(dst), dense(src); to.RowCount() == 1 && from.RowCount() == 1 {
				return s.d.drv.MemcpyDtoDAsync(address(to), address(from), to.Bytes, s.handle)
			}
			return s.copyRows(dst, src)
		},
	})
}

// checkAliases returns device.ErrOverlap for buffers of the same memory, which Of can make.
func (s *stream) checkAliases(dst, src device.Region) error {
	to, ok := dst.Buffer.(*buffer)
	from, also := src.Buffer.(*buffer)
	if !ok || !also || to == from || to.size > 0 && from.size > 0 {
		return nil
	}
	src.Buffer, src.Offset = dst.Buffer, src.Offset+int(from.addr)-int(to.addr)
	if src.Overlaps(dst) {
		return s.d.named(fmt.Errorf("buffers of the same memory: %w", device.ErrOverlap))
	}
	return nil
}

func (s *stream) Wait(ctx context.Context) error {
	s.d.mu.Lock()
	if s.d.err != nil && s.err == nil {
		s.err = &device.StreamError{Device: s.d.name, Work: "Wait", Err: s.d.err}
	}
	err, shared := s.check(), s.shared
	s.d.mu.Unlock()
	if err != nil {
		return err
	}
	if shared {
		if err := s.add(queued{name: "Wait", awaited: true, enqueue: func() error { return nil }}); err != nil {
			return err
		}
	}
	s.d.mu.Lock()
	last := s.last
	s.d.mu.Unlock()
	return s.d.await(ctx, last)
}

func (s *stream) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.closed {
		return s.d.errClosed("device")
	}
	if s.closed {
		return s.d.errClosed("stream")
	}
	s.closed = true
	if !s.foreign {
		delete(s.d.open, s)
		s.d.x.async("cuStreamDestroy", func() { _ = s.d.drv.StreamDestroy(s.handle) })
	}
	return nil
}
