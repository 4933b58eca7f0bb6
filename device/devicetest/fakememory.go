package devicetest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// The contents of staging memory without data: values that are unlikely in tests.
const (
	fresh   = 0xA5 // newly allocated
	pending = 0xC3 // to be filled by queued work
	gone    = 0xD9 // freed
)

func fill(p []byte, with byte) {
	for i := range p {
		p[i] = with
	}
}

// aligned returns n bytes with an address that is a multiple of device.Align.
func aligned(n int) []byte {
	room := make([]byte, n+device.Align-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(room))) % device.Align)
	return room[skip : skip+n : skip+n]
}

// A buffer is memory of a Fake.
type buffer struct {
	fake  *Fake
	mem   []byte // scrambled
	salt  uint32
	freed bool // guarded by fake.mu, like users
	users int  // copies that are queued or in progress
}

func (b *buffer) Device() device.Device { return b.fake }

func (b *buffer) Len() int { return len(b.mem) }

func (b *buffer) Free() error { return b.fake.free(b, &b.fake.memory, &b.freed, len(b.mem)) }

// endIfUnused releases the memory if it is freed and not in use. fake.mu is held.
func (b *buffer) endIfUnused() {
	if b.freed && b.users == 0 {
		b.fake.release(&b.fake.memory, len(b.mem))
	}
}

// key returns the mask of the byte at an offset. It is never 0, so every byte is changed.
func (b *buffer) key(offset int) byte {
	return byte((uint32(offset)*0x85EBCA6B^b.salt)*0xC2B2AE35>>24) | 1
}

func (b *buffer) write(offset int, src []byte) {
	for i, c := range src {
		b.mem[offset+i] = c ^ b.key(offset+i)
	}
}

func (b *buffer) read(dst []byte, offset int) {
	for i := range dst {
		dst[i] = b.mem[offset+i] ^ b.key(offset+i)
	}
}

// copyIn copies the beginning of src to r and returns the rest of src.
func copyIn(src []byte, r device.Region) []byte {
	for row := range r.RowCount() {
		r.Buffer.(*buffer).write(r.RowAt(row), src[:r.Bytes])
		src = src[r.Bytes:]
	}
	return src
}

// copyOut copies r to the beginning of dst and returns the rest of dst.
func copyOut(dst []byte, r device.Region) []byte {
	for row := range r.RowCount() {
		r.Buffer.(*buffer).read(dst[:r.Bytes], r.RowAt(row))
		dst = dst[r.Bytes:]
	}
	return dst
}

// A staging is memory of the host, which the device owns while queued work uses it.
type staging struct {
	fake *Fake
	mem  []byte

	// Guarded by fake.mu.
	freed bool
	queue []*work // work with the memory that is not done
	err   error   // of the first work that failed
}

func (s *staging) Device() device.Device { return s.fake }

func (s *staging) Len() int { return len(s.mem) }

func (s *staging) Bytes(ctx context.Context) ([]byte, error) {
	s.fake.mu.Lock()
	if err := s.check(); err != nil {
		s.fake.mu.Unlock()
		return nil, err
	}
	queue := slices.Clone(s.queue)
	s.fake.mu.Unlock()
	for _, w := range queue {
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, err
	}
	return s.mem, nil
}

// check returns an error if the memory must not be used. fake.mu is held.
func (s *staging) check() error {
	switch {
	case s.fake.closed:
		return s.fake.errClosed("device")
	case s.freed:
		return s.fake.errFreed("staging", len(s.mem))
	}
	return s.err
}

func (s *staging) Free() error { return s.fake.free(s, &s.fake.staging, &s.freed, len(s.mem)) }

// endIfUnused releases the memory if it is freed and not in use. The memory is kept for a while,
// and not reused, to detect later writes. fake.mu is held.
func (s *staging) endIfUnused() {
	if s.freed && len(s.queue) == 0 {
		s.fake.release(&s.fake.staging, len(s.mem))
		fill(s.mem, gone)
		s.fake.remains.add(s.mem, s.fake.misuse)
	}
}

// busy reports whether queued work uses any of the bytes. fake.mu is held.
func (s *staging) busy(at, bytes int) bool {
	return slices.ContainsFunc(s.queue, func(w *work) bool { return at < w.at+len(w.host) && w.at < at+bytes })
}

// remains is the list of freed staging memory that is checked for writes.
type remains struct {
	list [][]byte
	size int
}

// remainsMax bounds the bytes of remains.
const remainsMax = 16 << 20

func (r *remains) add(mem []byte, misuse func(string, ...any)) {
	r.list = append(r.list, mem)
	r.size += len(mem)
	for r.size > remainsMax {
		r.checkFirst(misuse)
	}
}

func (r *remains) checkAll(misuse func(string, ...any)) {
	for len(r.list) > 0 {
		r.checkFirst(misuse)
	}
}

func (r *remains) checkFirst(misuse func(string, ...any)) {
	mem := r.list[0]
	r.list = r.list[1:]
	r.size -= len(mem)
	if !holds(mem, gone) {
		misuse("write to a staging of %d bytes after Free", len(mem))
	}
}

// holds reports whether all bytes of p have a value.
func holds(p []byte, value byte) bool {
	return bytes.Count(p, []byte{value}) == len(p)
}

// A mark records the creation of a buffer, staging or stream.
type mark struct {
	what  string
	bytes int
	calls []uintptr
}

// newMark records the stack from the caller of its caller on, which is a method of Fake.
func newMark(what string, bytes int) *mark {
	m := &mark{what: what, bytes: bytes, calls: make([]uintptr, 8)}
	m.calls = m.calls[:runtime.Callers(3, m.calls)]
	return m
}

// String describes the leak.
func (m *mark) String() string {
	var text strings.Builder
	if m.what == "stream" {
		text.WriteString("a stream was not closed, created at")
	} else {
		fmt.Fprintf(&text, "a %s of %d bytes was not freed, created at", m.what, m.bytes)
	}
	frames := runtime.CallersFrames(m.calls)
	for more := len(m.calls) > 0; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		fmt.Fprintf(&text, "\n\t%s:%d", frame.File, frame.Line)
	}
	return text.String()
}
