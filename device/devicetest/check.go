package devicetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// A check is a running subtest. It frees and closes at its end all that its methods create.
type check struct {
	testing.TB
	d   device.Device
	ctx context.Context
	rng *rand.Rand

	another func() device.Device // returns one that the factory makes, which may be d
}

// must fails the subtest immediately if err is not nil.
func (x *check) must(err error, doing string) {
	if err != nil {
		x.Helper()
		x.Fatalf("%s: %v", doing, err)
	}
}

// wantError fails if err is not want.
func (x *check) wantError(err, want error, doing string) {
	if !errors.Is(err, want) {
		x.Helper()
		x.Errorf("%s: got error %v, want %v", doing, err, want)
	}
}

// random returns n random bytes.
func (x *check) random(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(x.rng.Uint32())
	}
	return p
}

// alloc returns a buffer with undefined contents.
func (x *check) alloc(n int) device.Buffer {
	x.Helper()
	b, err := x.d.Alloc(x.ctx, n)
	x.must(err, "alloc")
	x.Cleanup(func() { x.free(b) })
	return b
}

// freer is a Buffer or a Staging.
type freer interface{ Free() error }

// free frees f unless the subtest already has.
func (x *check) free(f freer) {
	if err := f.Free(); err != nil && !errors.Is(err, device.ErrFreed) && !errors.Is(err, device.ErrClosed) {
		x.Helper()
		x.Errorf("free: %v", err)
	}
}

// filled returns a buffer of n random bytes, and the bytes.
func (x *check) filled(n int) (device.Buffer, []byte) {
	x.Helper()
	b, data := x.alloc(n), x.random(n)
	x.copyIn(device.Whole(b), data)
	return b, data
}

func (x *check) copyIn(dst device.Region, src []byte) {
	x.Helper()
	x.must(x.d.CopyIn(x.ctx, dst, src), "copy in")
}

// want fails if the contents of a buffer are not data.
func (x *check) want(b device.Buffer, data []byte, what string) {
	x.Helper()
	got := x.random(len(data))
	x.must(x.d.CopyOut(x.ctx, got, device.Whole(b)), "copy out")
	x.same(got, data, what)
}

// same fails if two slices differ, and reports the first difference.
func (x *check) same(got, want []byte, what string) {
	x.Helper()
	if slices.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		x.Errorf("%s: got %d bytes, want %d", what, len(got), len(want))
		return
	}
	first, wrong := -1, 0
	for i := range want {
		if got[i] != want[i] {
			wrong++
			if first < 0 {
				first = i
			}
		}
	}
	x.Errorf("%s: %d of %d bytes are wrong, the first at %d: got %#x, want %#x", what, wrong, len(want), first, got[first], want[first])
}

func (x *check) stream() device.Stream {
	x.Helper()
	s, err := x.d.NewStream()
	x.must(err, "new stream")
	x.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, device.ErrClosed) {
			x.Errorf("close a stream: %v", err)
		}
	})
	return s
}

func (x *check) wait(s device.Stream) {
	x.Helper()
	x.must(s.Wait(x.ctx), "wait for a stream")
}

// stage returns staging memory with undefined contents.
func (x *check) stage(n int) device.Staging {
	x.Helper()
	s, err := x.d.Stage(x.ctx, n)
	x.must(err, "stage")
	x.Cleanup(func() { x.free(s) })
	return s
}

// staged returns staging memory that contains data.
func (x *check) staged(data []byte) device.Staging {
	x.Helper()
	s := x.stage(len(data))
	copy(x.bytes(s), data)
	return s
}

// bytes waits for the memory of a staging and returns it.
func (x *check) bytes(s device.Staging) []byte {
	x.Helper()
	p, err := s.Bytes(x.ctx)
	x.must(err, "bytes of a staging")
	if len(p) != s.Len() {
		x.Fatalf("Bytes of a staging of %d bytes returns %d", s.Len(), len(p))
	}
	return p
}

// isAligned reports whether the address of p is a multiple of device.Align.
func isAligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%device.Align == 0
}

// sizes returns lengths in bytes at and around limits of an implementation.
func sizes() []int {
	return []int{0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 255, 257, 4095, 4096, 4097, 64<<10 + 1, 1<<18 - 3}
}

// gather returns the concatenated regions of a buffer that contains data.
func gather(data []byte, regions ...device.Region) []byte {
	var p []byte
	for _, r := range regions {
		for row := range r.RowCount() {
			p = append(p, data[r.RowAt(row):][:r.Bytes]...)
		}
	}
	return p
}

// scatter copies p to the regions of a buffer that contains data.
func scatter(data, p []byte, regions ...device.Region) {
	for _, r := range regions {
		for row := range r.RowCount() {
			p = p[copy(data[r.RowAt(row):][:r.Bytes], p):]
		}
	}
}

// layouts returns lists of regions of a buffer of layoutBytes bytes: one and several, in and out
// of order, contiguous and in rows, unaligned, empty.
func layouts(b device.Buffer) [][]device.Region {
	at := func(offset, bytes int) device.Region {
		return device.Region{Buffer: b, Offset: offset, Bytes: bytes}
	}
	rows := func(offset, bytes, rows, stride int) device.Region {
		return device.Region{Buffer: b, Offset: offset, Bytes: bytes, Rows: rows, Stride: stride}
	}
	return [][]device.Region{
		{at(0, layoutBytes)},
		{at(1, 100)},
		{at(layoutBytes-1, 1)},
		{at(0, 0)},
		{at(layoutBytes, 0)},
		{},
		{at(700, 13), at(5, 64), at(300, 1), at(299, 1)},
		{at(10, 3), at(50, 0), at(20, 4)},
		{rows(2, 1, 1, 0)},
		{rows(3, 4, 20, 40)},
		{rows(0, 40, 25, 40)},
		{rows(7, 1, layoutBytes-7, 1)},
		{rows(900, 7, 4, 31)},
		{at(900, 50), rows(11, 5, 7, 60), at(0, 3), rows(17, 2, 5, 70)},
		{rows(5, 0, 9, 3)},
	}
}

// layoutBytes is the length of the buffer of layouts.
const layoutBytes = 1000
