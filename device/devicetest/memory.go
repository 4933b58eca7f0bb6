package devicetest

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/nexar-go/nexar/device"
)

// testNames: the device has a name, and buffers, stagings and streams return their device.
func testNames(x *check) {
	if name := x.d.Name(); name == "" || strings.ContainsAny(name, " \t\n") {
		x.Errorf("the name of the device is %q, want one word", name)
	}
	a, b := x.alloc(10), x.alloc(10)
	if a == b {
		x.Error("two buffers are equal")
	}
	if a.Device() != x.d {
		x.Errorf("device of a buffer: %v, want %v", a.Device(), x.d)
	}
	if got := x.stage(10).Device(); got != x.d {
		x.Errorf("device of a staging: %v, want %v", got, x.d)
	}
	if got := x.stream().Device(); got != x.d {
		x.Errorf("device of a stream: %v, want %v", got, x.d)
	}
}

// testAlloc: buffers have the requested length and do not share memory.
func testAlloc(x *check) {
	var buffers []device.Buffer
	var contents [][]byte
	for _, n := range sizes() {
		b, data := x.filled(n)
		if b.Len() != n {
			x.Errorf("Len of a buffer of %d bytes is %d", n, b.Len())
		}
		buffers, contents = append(buffers, b), append(contents, data)
	}
	for i, b := range buffers {
		x.want(b, contents[i], "buffer, after others were filled")
	}
	for i, b := range buffers {
		x.must(b.Free(), "free")
		if b.Len() != len(contents[i]) {
			x.Errorf("Len of a freed buffer of %d bytes is %d", len(contents[i]), b.Len())
		}
	}
}

// testStage: stagings have the requested length, are aligned, do not move, and do not share
// memory.
func testStage(x *check) {
	var stagings []device.Staging
	var contents [][]byte
	for _, n := range sizes() {
		data := x.random(n)
		s := x.staged(data)
		if s.Len() != n {
			x.Errorf("Len of a staging of %d bytes is %d", n, s.Len())
		}
		if n > 0 && !isAligned(x.bytes(s)) {
			x.Errorf("staging of %d bytes is at %p, want a multiple of %d", n, x.bytes(s), device.Align)
		}
		stagings, contents = append(stagings, s), append(contents, data)
	}
	for i, s := range stagings {
		x.same(x.bytes(s), contents[i], "staging, after others were filled")
	}
	for i, s := range stagings {
		x.must(s.Free(), "free")
		if s.Len() != len(contents[i]) {
			x.Errorf("Len of a freed staging of %d bytes is %d", len(contents[i]), s.Len())
		}
	}
}

// testNoMemory: an allocation that fails reports its length, and does not affect the device.
func testNoMemory(x *check) {
	b, data := x.filled(100)
	alloc := func(n int) error { _, err := x.d.Alloc(x.ctx, n); return err }
	stage := func(n int) error { _, err := x.d.Stage(x.ctx, n); return err }
	for what, f := range map[string]func(int) error{"Alloc": alloc, "Stage": stage} {
		for _, n := range []int{math.MaxInt, int(min(uint64(math.MaxInt), 1<<62))} {
			err := f(n)
			x.wantError(err, device.ErrNoMemory, what)
			e, ok := errors.AsType[*device.MemoryError](err)
			if !ok || e.Requested != n || e.Device != x.d.Name() {
				x.Errorf("%s of %d bytes: got error %#v, want a MemoryError with the bytes and the device", what, n, err)
			}
		}
		for _, n := range []int{-1, math.MinInt} {
			if err := f(n); !isLengthError(err) {
				x.Errorf("%s of %d bytes: got error %v, want a LengthError", what, n, err)
			}
		}
	}
	x.want(b, data, "after failed allocations")
	x.want(x.alloc(0), nil, "buffer of length 0")
}

func isLengthError(err error) bool {
	_, ok := errors.AsType[*device.LengthError](err)
	return ok
}

// testEnded: with a context that has ended, calls do nothing unless they need not wait.
func testEnded(x *check) {
	b, data := x.filled(100)
	cause := errors.New("canceled")
	ctx, cancel := context.WithCancelCause(x.ctx)
	cancel(cause)

	_, err := x.d.Alloc(ctx, 10)
	x.wantError(err, cause, "Alloc")
	_, err = x.d.Stage(ctx, 10)
	x.wantError(err, cause, "Stage")
	x.wantError(x.d.CopyIn(ctx, device.Whole(b), x.random(100)), cause, "CopyIn")
	dst := x.random(100)
	before := append([]byte(nil), dst...)
	x.wantError(x.d.CopyOut(ctx, dst, device.Whole(b)), cause, "CopyOut")
	x.same(dst, before, "destination of CopyOut")
	x.want(b, data, "destination of CopyIn")

	// A call that need not wait ignores the context.
	s, st := x.stream(), x.stage(100)
	x.must(s.Wait(ctx), "wait for a stream without work")
	x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
	x.wait(s)
	x.must(s.Wait(ctx), "wait for a stream whose work is done")
	got, err := st.Bytes(ctx)
	x.must(err, "bytes of a staging whose work is done")
	x.same(got, data, "staging")
}
