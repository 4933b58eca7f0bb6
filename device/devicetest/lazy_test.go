package devicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/device"
)

// A lazy device does work only when a call waits for it, which the contract allows. It has the named
// fault, or none.
type lazy struct {
	fault string

	mu       sync.Mutex
	held     chan struct{} // closed by the release of Hold; nil if the device is not held
	failures map[int]error
	copies   int
	streams  int
	spare    [][]byte // memory that a fault reuses
}

func newLazy(fault string) *lazy { return &lazy{fault: fault, failures: make(map[int]error)} }

func (d *lazy) has(fault string) bool { return d.fault == fault }

func (d *lazy) Name() string {
	if d.has("no name") {
		return ""
	}
	return "lazy"
}

func (d *lazy) Alloc(ctx context.Context, bytes int) (device.Buffer, error) {
	mem, err := d.memory(ctx, "buffer", bytes)
	if err != nil {
		return nil, err
	}
	return &lazyBuffer{d: d, mem: mem}, nil
}

func (d *lazy) Stage(ctx context.Context, bytes int) (device.Staging, error) {
	mem, err := d.memory(ctx, "staging", bytes)
	if err != nil {
		return nil, err
	}
	return &lazyStaging{d: d, mem: mem}, nil
}

func (d *lazy) memory(ctx context.Context, what string, bytes int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case bytes < 0 && !d.has("negative length"):
		return nil, &device.LengthError{Device: "lazy", What: what, Unit: "bytes", Got: bytes, Want: -1}
	case ctx.Err() != nil && !d.has("ignores an ended context"):
		return nil, context.Cause(ctx)
	case bytes > 1<<30:
		if d.has("MemoryError without bytes") {
			return nil, device.ErrNoMemory
		}
		return nil, &device.MemoryError{Device: "lazy", What: what, Requested: bytes, Free: -1, Total: -1}
	case d.has("shared memory of " + what + "s"):
		if d.spare == nil {
			d.spare = [][]byte{aligned(2 << 20)}
		}
		return d.spare[0][:bytes], nil
	case d.has("unaligned staging"):
		return aligned(bytes + 8)[8:], nil
	}
	for i, p := range d.spare {
		if len(p) == bytes {
			d.spare = slices.Delete(d.spare, i, i+1)
			return p, nil
		}
	}
	return aligned(max(bytes, 0)), nil
}

func (d *lazy) NewStream() (device.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams++
	if d.streams > 4 && d.has("too few streams") {
		return nil, errors.New("device lazy: no more streams")
	}
	return &lazyStream{d: d}, nil
}

func (d *lazy) CopyIn(ctx context.Context, dst device.Region, src []byte) error {
	return d.copyNow(ctx, dst, "src", len(src), func() {
		if d.has("omits the last byte") && len(src) > 0 {
			src = src[:len(src)-1]
		}
		if mem := dst.Buffer.(*lazyBuffer).mem; d.has("one byte too many") && dst.Offset+dst.Bytes < len(mem) {
			mem[dst.Offset+dst.Bytes]++
		}
		d.in(dst, src)
	})
}

func (d *lazy) CopyOut(ctx context.Context, dst []byte, src device.Region) error {
	return d.copyNow(ctx, src, "dst", len(dst), func() { d.out(dst, src) })
}

func (d *lazy) copyNow(ctx context.Context, r device.Region, what string, length int, do func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	bytes, err := d.check(r)
	if err == nil && !d.has("truncates lengths") {
		err = device.CheckLength(d, what, length, bytes)
	}
	if err == nil && ctx.Err() != nil && !d.has("ignores an ended context") {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.nextFailure()
	}
	if err == nil && r.Buffer.Device() == device.Device(d) {
		do()
	}
	return err
}

// in copies src to r, as far as both have bytes, and returns the rest of src.
func (d *lazy) in(r device.Region, src []byte) []byte {
	mem := r.Buffer.(*lazyBuffer).mem
	for row := range d.rows(r) {
		n := min(r.Bytes, len(src), len(mem))
		copy(mem[d.at(r, row, "copies in at offset 0"):], src[:n])
		src = src[n:]
	}
	return src
}

func (d *lazy) out(dst []byte, r device.Region) []byte {
	mem := r.Buffer.(*lazyBuffer).mem
	for row := range d.rows(r) {
		n := min(r.Bytes, len(dst))
		copy(dst[:n], mem[d.at(r, row, "copies out at offset 0"):])
		dst = dst[n:]
	}
	return dst
}

func (d *lazy) rows(r device.Region) int {
	if d.has("first row only") {
		return min(r.RowCount(), 1)
	}
	return r.RowCount()
}

func (d *lazy) at(r device.Region, row int, fault string) int {
	switch {
	case d.has(fault):
		return 0
	case d.has("no stride"):
		return r.Offset + row*r.Bytes
	}
	return r.RowAt(row)
}

// check returns the length of regions, or an error. d.mu is held.
func (d *lazy) check(regions ...device.Region) (int, error) {
	if d.has("nil buffer") && regions[0].Buffer == nil {
		return regions[0].Buffer.Len(), nil
	}
	bytes, err := device.Check(d, regions...)
	if e, ok := errors.AsType[*device.ForeignError](err); ok {
		switch d.fault {
		case "accepts foreign regions":
			return regions[0].Bytes, nil
		case "ForeignError without names":
			return 0, &device.ForeignError{Device: e.Device, What: e.What}
		}
	}
	if e, ok := errors.AsType[*device.RangeError](err); ok {
		switch d.fault {
		case "accepts invalid regions":
			return regions[0].Bytes, nil
		case "RangeError without size":
			e.Size = 0
		}
	}
	for _, r := range regions {
		if b, ok := r.Buffer.(*lazyBuffer); ok && b.freed && err == nil && !d.has("use after free") {
			err = fmt.Errorf("device lazy: buffer: %w", device.ErrFreed)
		}
	}
	return bytes, err
}

func (d *lazy) FailCopy(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[d.copies+n] = err
}

func (d *lazy) nextFailure() error {
	d.copies++
	return d.failures[d.copies]
}

func (d *lazy) Hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(d.held)
		d.held = nil
	})
}

func (d *lazy) Map(b device.Buffer) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.check(device.Region{Buffer: b}); err != nil {
		return nil, err
	}
	if mem := b.(*lazyBuffer).mem; !d.has("map is a copy") {
		return mem, nil
	}
	mem := aligned(b.Len())
	copy(mem, b.(*lazyBuffer).mem)
	return mem, nil
}

// lazyNames has the exported buffers, by their names.
var lazyNames sync.Map

func (d *lazy) Export(b device.Buffer) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own, ok := b.(*lazyBuffer)
	switch {
	case !ok || own.d != d:
		return nil, &device.ForeignError{Device: "lazy", Owner: b.Device().Name(), What: "buffer"}
	case len(own.mem) == 0:
		return nil, &device.LengthError{Device: "lazy", What: "buffer", Unit: "bytes", Want: -1}
	case own.freed && !d.has("exports freed memory"):
		return nil, fmt.Errorf("device lazy: buffer: %w", device.ErrFreed)
	}
	name := fmt.Sprintf("%p", own)
	lazyNames.Store(name, own)
	return []byte(name), nil
}

func (d *lazy) Attach(name []byte) (device.Buffer, error) {
	found, ok := lazyNames.Load(string(name))
	if !ok {
		return nil, fmt.Errorf("device lazy: no memory has the name %q", name)
	}
	other := found.(*lazyBuffer)
	b := &lazyBuffer{d: d, mem: other.mem}
	if d.has("attached memory is a copy") {
		b.mem = slices.Clone(b.mem)
	}
	if d.has("attaches to the own device") {
		b.d = other.d
	}
	return b, nil
}

type lazyBuffer struct {
	d     *lazy
	mem   []byte
	freed bool
}

func (b *lazyBuffer) Device() device.Device {
	if b.d.has("buffer of another device") {
		return newLazy("")
	}
	return b.d
}

func (b *lazyBuffer) Len() int {
	if b.d.has("wrong length") {
		return len(b.mem) &^ 1
	}
	return len(b.mem)
}

func (b *lazyBuffer) Free() error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if b.freed && !b.d.has("free twice") {
		return fmt.Errorf("device lazy: buffer: %w", device.ErrFreed)
	}
	b.freed = true
	if b.d.has("freed buffer is reused") {
		b.d.spare = append(b.d.spare, b.mem)
	}
	return nil
}

type lazyStaging struct {
	d     *lazy
	mem   []byte
	freed bool
	queue []*lazyWork
	err   error
}

func (s *lazyStaging) Device() device.Device { return s.d }

func (s *lazyStaging) Len() int { return len(s.mem) }

func (s *lazyStaging) Bytes(ctx context.Context) ([]byte, error) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.freed && !s.d.has("bytes after free") {
		return nil, fmt.Errorf("device lazy: staging: %w", device.ErrFreed)
	}
	for _, w := range s.queue {
		if s.d.has("bytes without waiting") {
			break
		}
		if err := w.stream.flush(ctx, w); err != nil {
			return nil, err
		}
		if s.d.has("bytes waits for the first work") {
			break
		}
	}
	if s.d.has("bytes are a copy") {
		return slices.Clone(s.mem), s.err
	}
	return s.mem, s.err
}

func (s *lazyStaging) Free() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.freed {
		return fmt.Errorf("device lazy: staging: %w", device.ErrFreed)
	}
	s.freed = true
	if s.d.has("freed staging is reused") {
		s.d.spare = append(s.d.spare, s.mem)
	}
	return nil
}
