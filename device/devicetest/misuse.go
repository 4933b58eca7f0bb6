package devicetest

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nexar-go/nexar/device"
)

// A use is a call that takes a region.
type use struct {
	name string
	with func(r device.Region) error
}

// uses returns all calls that take a region r. They affect r and memory that is not checked.
func (x *check) uses(s device.Stream) []use {
	x.Helper()
	st, other := x.stage(4096), x.alloc(4096)
	// The other arguments are valid.
	length := func(r device.Region) int { return min(max(r.Bytes*max(r.Rows, 1), 0), 4096) }
	beside := func(r device.Region) device.Region {
		bytes := min(max(r.Bytes, 0), 400)
		return device.Region{Buffer: other, Bytes: bytes, Rows: min(max(r.Rows, 0), 10), Stride: bytes}
	}
	return []use{
		{"CopyIn", func(r device.Region) error { return x.d.CopyIn(x.ctx, r, make([]byte, length(r))) }},
		{"CopyOut", func(r device.Region) error { return x.d.CopyOut(x.ctx, make([]byte, length(r)), r) }},
		{"StageSend", func(r device.Region) error { return s.StageSend(st, 0, r) }},
		{"StageSend, second region", func(r device.Region) error { return s.StageSend(st, 0, device.Region{Buffer: other, Bytes: 1}, r) }},
		{"ReceiveInto", func(r device.Region) error { return s.ReceiveInto(st, 0, r) }},
		{"ReceiveInto, second region", func(r device.Region) error { return s.ReceiveInto(st, 0, device.Region{Buffer: other, Bytes: 1}, r) }},
		{"Copy to it", func(r device.Region) error { return s.Copy(r, beside(r)) }},
		{"Copy from it", func(r device.Region) error { return s.Copy(beside(r), r) }},
	}
}

// namesDevice fails if an error does not name the device.
func (x *check) namesDevice(err error, what string) {
	if err != nil && !strings.Contains(err.Error(), x.d.Name()) {
		x.Helper()
		x.Errorf("%s: the error does not name the device %s: %v", what, x.d.Name(), err)
	}
}

// works fails if a stream does not work.
func (x *check) works(s device.Stream) {
	x.Helper()
	b, data := x.filled(40)
	st := x.stage(40)
	x.must(s.StageSend(st, 0, device.Whole(b)), "stage send after misuse")
	x.same(x.bytes(st), data, "staging after misuse")
	x.wait(s)
}

// testRange: a region that is not inside its buffer is an error that describes it, without an
// effect.
func testRange(x *check) {
	const size = 100
	s := x.stream()
	b, data := x.filled(size)
	for _, r := range []device.Region{
		{Offset: 0, Bytes: size + 1},
		{Offset: 1, Bytes: size},
		{Offset: size, Bytes: 1},
		{Offset: size + 1, Bytes: 0},
		{Offset: -1, Bytes: 1},
		{Offset: -1, Bytes: 0},
		{Offset: 0, Bytes: -1},
		{Offset: math.MaxInt, Bytes: 1},
		{Offset: 1, Bytes: math.MaxInt},
		{Offset: math.MaxInt, Bytes: math.MaxInt},
		{Offset: math.MinInt, Bytes: 1},
		{Offset: 0, Bytes: 10, Rows: -1, Stride: 10},
		{Offset: 0, Bytes: 10, Rows: 11, Stride: 10},
		{Offset: 1, Bytes: 10, Rows: 10, Stride: 10},
		{Offset: 0, Bytes: 10, Rows: 2, Stride: 91},
		{Offset: 0, Bytes: 10, Rows: 2, Stride: 9},
		{Offset: 0, Bytes: 10, Rows: 2, Stride: 0},
		{Offset: 50, Bytes: 10, Rows: 2, Stride: -10},
		{Offset: 0, Bytes: 2, Rows: math.MaxInt, Stride: 2},
		{Offset: 0, Bytes: 2, Rows: math.MaxInt/2 + 2, Stride: 2},
		{Offset: 0, Bytes: 1, Rows: 3, Stride: math.MaxInt},
	} {
		r.Buffer = b
		for _, u := range x.uses(s) {
			what := fmt.Sprintf("%s: %d rows of %d bytes at %d with stride %d of %d", u.name, r.Rows, r.Bytes, r.Offset, r.Stride, size)
			err := u.with(r)
			e, ok := errors.AsType[*device.RangeError](err)
			if !ok {
				x.Errorf("%s: got error %v, want a RangeError", what, err)
				continue
			}
			got := [6]any{e.Device, e.Offset, e.Bytes, e.Rows, e.Stride, e.Size}
			want := [6]any{x.d.Name(), r.Offset, r.Bytes, r.Rows, r.Stride, size}
			if got != want {
				x.Errorf("%s: the RangeError has device, offset, bytes, rows, stride and size %v, want %v", what, got, want)
			}
			x.namesDevice(err, what)
		}
	}
	x.want(b, data, "buffer after invalid regions")
	x.works(s)
	// A region of empty rows is valid for any number of rows.
	none := device.Region{Buffer: b, Offset: size, Rows: math.MaxInt}
	for _, u := range x.uses(s) {
		x.must(u.with(none), u.name+" of many empty rows")
	}
	x.wait(s)
}

// testStagingRange is testRange for staging memory.
func testStagingRange(x *check) {
	const size = 100
	s := x.stream()
	b, data := x.filled(1000)
	before := x.random(size)
	st := x.staged(before)
	for _, test := range []struct{ at, bytes int }{
		{0, size + 1}, {1, size}, {size, 1}, {size + 1, 0}, {-1, 1}, {-1, 0},
		{math.MaxInt, 1}, {math.MaxInt, 0}, {math.MinInt, 1}, {math.MaxInt - 10, 100},
	} {
		r := device.Region{Buffer: b, Bytes: test.bytes}
		for name, err := range map[string]error{
			"StageSend":   s.StageSend(st, test.at, r),
			"ReceiveInto": s.ReceiveInto(st, test.at, r),
		} {
			what := fmt.Sprintf("%s of %d bytes at %d of %d", name, test.bytes, test.at, size)
			e, ok := errors.AsType[*device.RangeError](err)
			if !ok || e.Offset != test.at || e.Bytes != test.bytes || e.Size != size || e.Device != x.d.Name() {
				x.Errorf("%s: got error %#v, want a RangeError with device, offset, bytes and size", what, err)
			}
			x.namesDevice(err, what)
		}
	}
	x.same(x.bytes(st), before, "staging")
	x.want(b, data, "buffer")
	x.works(s)
}

// testLengths: source and destination must have the same length.
func testLengths(x *check) {
	s := x.stream()
	a, data := x.filled(100)
	b := x.alloc(100)
	r := device.Region{Buffer: a, Offset: 20, Bytes: 10, Rows: 3, Stride: 20}
	shape := func(bytes, rows int) device.Region {
		return device.Region{Buffer: b, Bytes: bytes, Rows: rows, Stride: 10}
	}
	for what, err := range map[string]error{
		"short CopyIn":            x.d.CopyIn(x.ctx, r, x.random(29)),
		"empty CopyIn":            x.d.CopyIn(x.ctx, r, nil),
		"long CopyIn":             x.d.CopyIn(x.ctx, r, x.random(31)),
		"short CopyOut":           x.d.CopyOut(x.ctx, x.random(29), r),
		"long CopyOut":            x.d.CopyOut(x.ctx, x.random(31), r),
		"Copy of fewer rows":      s.Copy(r, shape(10, 2)),
		"Copy of more rows":       s.Copy(r, shape(10, 4)),
		"Copy of short rows":      s.Copy(r, shape(9, 3)),
		"Copy of one long row":    s.Copy(r, shape(30, 1)),
		"Copy of one row to many": s.Copy(shape(30, 0), r),
	} {
		if !isLengthError(err) {
			x.Errorf("%s: got error %v, want a LengthError", what, err)
		}
		x.namesDevice(err, what)
	}
	x.want(a, data, "buffer")
	x.works(s)
}

// testOverlap: Copy fails for regions that share memory, and for no others.
func testOverlap(x *check) {
	s := x.stream()
	b, data := x.filled(100)
	region := func(offset, bytes, rows, stride int) device.Region {
		return device.Region{Buffer: b, Offset: offset, Bytes: bytes, Rows: rows, Stride: stride}
	}
	for _, pair := range [][2]device.Region{
		{region(0, 100, 0, 0), region(0, 100, 0, 0)},
		{region(0, 10, 0, 0), region(9, 10, 0, 0)},
		{region(9, 10, 0, 0), region(0, 10, 0, 0)},
		{region(0, 2, 5, 10), region(31, 2, 5, 10)},
		{region(0, 2, 5, 10), region(8, 2, 5, 11)},
	} {
		x.wantError(s.Copy(pair[0], pair[1]), device.ErrOverlap, fmt.Sprintf("copy to %d from %d", pair[0].Offset, pair[1].Offset))
	}
	x.wait(s)
	x.want(b, data, "buffer")
	for _, pair := range [][2]device.Region{
		{region(0, 50, 0, 0), region(50, 50, 0, 0)},
		{region(0, 5, 10, 10), region(5, 5, 10, 10)},
		{region(5, 0, 0, 0), region(5, 0, 0, 0)},
	} {
		x.must(s.Copy(pair[0], pair[1]), "copy of adjacent regions")
	}
	x.wait(s)
}

// testForeign: a buffer or staging of another device is an error that names both devices.
func testForeign(x *check) {
	other := NewFake(x, FakeConfig{Name: "other"})
	s := x.stream()
	foreign := x.foreign(other)
	staging, err := other.Stage(x.ctx, 100)
	x.must(err, "stage on another device")
	defer x.free(staging)
	b, data := x.filled(100)

	errs := map[string]error{
		"StageSend to a foreign staging":     s.StageSend(staging, 0, device.Whole(b)),
		"ReceiveInto from a foreign staging": s.ReceiveInto(staging, 0, device.Whole(b)),
	}
	for _, u := range x.uses(s) {
		errs[u.name+" of a foreign buffer"] = u.with(device.Whole(foreign))
	}
	for what, err := range errs {
		e, ok := errors.AsType[*device.ForeignError](err)
		if !ok || e.Device != x.d.Name() || e.Owner != "other" {
			x.Errorf("%s: got error %#v, want a ForeignError with %q and %q", what, err, x.d.Name(), "other")
		}
		x.namesDevice(err, what)
	}
	x.want(b, data, "buffer")
	x.works(s)
}

// testNoBuffer: a nil buffer or staging is an error.
func testNoBuffer(x *check) {
	s := x.stream()
	b := x.alloc(10)
	for _, u := range x.uses(s) {
		for _, r := range []device.Region{{}, {Bytes: 5}} {
			err := u.with(r)
			x.wantError(err, device.ErrNoBuffer, u.name)
			x.namesDevice(err, u.name)
		}
	}
	x.wantError(s.StageSend(nil, 0, device.Whole(b)), device.ErrNoBuffer, "StageSend to nil")
	x.wantError(s.ReceiveInto(nil, 0, device.Whole(b)), device.ErrNoBuffer, "ReceiveInto from nil")
	x.works(s)
}

// testFreed: a freed buffer or staging can neither be used nor freed again.
func testFreed(x *check) {
	s := x.stream()
	b, _ := x.filled(100)
	x.must(b.Free(), "free")
	for _, u := range x.uses(s) {
		for _, n := range []int{0, 100} {
			err := u.with(device.Region{Buffer: b, Bytes: n})
			x.wantError(err, device.ErrFreed, fmt.Sprintf("%s of %d bytes of a freed buffer", u.name, n))
			x.namesDevice(err, u.name)
		}
	}
	x.wantError(b.Free(), device.ErrFreed, "Free of a freed buffer")

	c, data := x.filled(100)
	st := x.stage(100)
	x.must(st.Free(), "free")
	_, err := st.Bytes(x.ctx)
	for what, err := range map[string]error{
		"Bytes":       err,
		"StageSend":   s.StageSend(st, 0, device.Whole(c)),
		"ReceiveInto": s.ReceiveInto(st, 0, device.Whole(c)),
		"Free":        st.Free(),
	} {
		x.wantError(err, device.ErrFreed, what+" of a freed staging")
		x.namesDevice(err, what)
	}
	x.want(c, data, "buffer")
	x.works(s)
}

// testClosed: all calls on a closed stream fail.
func testClosed(x *check) {
	s := x.stream()
	b, data := x.filled(100)
	st, other := x.stage(100), x.alloc(100)
	x.must(s.Close(), "close")
	for what, err := range map[string]error{
		"StageSend":   s.StageSend(st, 0, device.Whole(b)),
		"ReceiveInto": s.ReceiveInto(st, 0, device.Whole(b)),
		"Copy":        s.Copy(device.Whole(b), device.Whole(other)),
		"Wait":        s.Wait(x.ctx),
		"Close":       s.Close(),
	} {
		x.wantError(err, device.ErrClosed, what+" of a closed stream")
		x.namesDevice(err, what)
	}
	x.bytes(st)
	x.want(b, data, "buffer")
	x.works(x.stream())
}
