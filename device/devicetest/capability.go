package devicetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// testHeld: after a wait whose context ended, work continues and the device still owns the
// memory, until a later wait.
func testHeld(x *check) {
	cause := errors.New("canceled")
	ctx, cancel := context.WithCancelCause(x.ctx)
	cancel(cause)
	release := x.d.(Holder).Hold()
	defer release()

	s := x.stream()
	a, data := x.filled(100)
	b, out, free := x.alloc(100), x.stage(100), x.stage(100)
	x.must(s.Copy(device.Whole(b), device.Whole(a)), "copy")
	x.must(s.StageSend(out, 0, device.Whole(b)), "stage send")
	x.wantError(s.Wait(ctx), cause, "Wait for a stream that is held")
	_, err := out.Bytes(ctx)
	x.wantError(err, cause, "Bytes of a staging whose work is held")
	if _, err := free.Bytes(ctx); err != nil {
		x.Errorf("Bytes of a staging without work waits: %v", err)
	}
	if err := x.stream().Wait(ctx); err != nil {
		x.Errorf("Wait for a stream without work: %v", err)
	}

	// Memory of queued work must not be reused.
	x.must(b.Free(), "free")
	x.filled(100)
	release()
	x.same(x.bytes(out), data, "staging, after a canceled wait")
	x.wait(s)
}

// testFailure: work that fails ends its stream, and all calls that wait for it fail.
func testFailure(x *check) {
	broken := errors.New("broken")
	for name, queue := range map[string]func(s device.Stream, st device.Staging, r device.Region) error{
		"StageSend":   func(s device.Stream, st device.Staging, r device.Region) error { return s.StageSend(st, 0, r) },
		"ReceiveInto": func(s device.Stream, st device.Staging, r device.Region) error { return s.ReceiveInto(st, 0, r) },
	} {
		s, other := x.stream(), x.stream()
		b, data := x.filled(100)
		before, during, after := x.stage(100), x.stage(100), x.stage(100)
		x.must(s.StageSend(before, 0, device.Whole(b)), "stage send")
		x.same(x.bytes(before), data, "staging before the failure")

		x.d.(Failer).FailCopy(1, broken)
		c := x.alloc(100)
		x.failed(queue(s, during, device.Whole(c)), broken, true, name)
		x.failed(s.StageSend(after, 0, device.Whole(b)), broken, true, "StageSend behind a "+name)
		x.failed(s.Wait(x.ctx), broken, false, "Wait after a "+name)
		x.failed(s.Copy(device.Whole(c), device.Whole(b)), broken, false, "Copy after a "+name)
		x.failed(s.Wait(x.ctx), broken, false, "a second Wait after a "+name)
		_, err := during.Bytes(x.ctx)
		x.failed(err, broken, false, "Bytes after a "+name)
		_, err = during.Bytes(x.ctx)
		x.failed(err, broken, false, "a second Bytes after a "+name)
		x.same(x.bytes(before), data, "staging of work before the failure")
		x.must(s.Close(), "close a failed stream")
		x.must(during.Free(), "free the staging of failed work")
		x.works(other)
		x.want(b, data, "buffer")
	}
	b, data := x.filled(100)
	x.d.(Failer).FailCopy(2, broken)
	x.want(b, data, "first copy")
	x.wantError(x.d.CopyIn(x.ctx, device.Whole(b), x.random(100)), broken, "CopyIn that fails")
	x.copyIn(device.Whole(b), data)
	x.want(b, data, "after a failed copy")
}

// failed fails unless err is a StreamError with the cause, or early is set and err is nil: a call
// that queues work need not know of the failure yet.
func (x *check) failed(err, cause error, early bool, what string) {
	if early && err == nil {
		return
	}
	x.Helper()
	e, ok := errors.AsType[*device.StreamError](err)
	if !ok || !errors.Is(err, cause) || e.Device != x.d.Name() || e.Work == "" {
		x.Errorf("%s: got error %v, want a StreamError with the device, the work and %v", what, err, cause)
	}
}

// testMapper: mapped memory is the memory of the buffer.
func testMapper(x *check) {
	m, s := x.d.(device.Mapper), x.stream()
	for _, n := range sizes() {
		b, data := x.filled(n)
		mem, err := m.Map(b)
		x.must(err, "map")
		x.same(mem, data, fmt.Sprintf("memory of a buffer of %d bytes", n))
		if n > 0 && !isAligned(mem) {
			x.Errorf("mapped memory of a buffer of %d bytes is at %p, want a multiple of %d", n, mem, device.Align)
		}
		data = x.random(n)
		copy(mem, data)
		x.want(b, data, fmt.Sprintf("buffer of %d bytes after a write to its mapped memory", n))
		st := x.stage(n)
		x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
		x.same(x.bytes(st), data, "staging")
		again, err := m.Map(b)
		x.must(err, "map again")
		if n > 0 && (&again[0] != &mem[0] || len(again) != n) {
			x.Error("Map returns different slices")
		}
		x.must(b.Free(), "free")
		_, err = m.Map(b)
		x.wantError(err, device.ErrFreed, "Map of a freed buffer")
	}
	other := NewFake(x, FakeConfig{Name: "other"})
	_, err := m.Map(x.foreign(other))
	if e, ok := errors.AsType[*device.ForeignError](err); !ok || e.Owner != "other" || e.Device != x.d.Name() {
		x.Errorf("Map of a foreign buffer: got error %v, want a ForeignError with both names", err)
	}
	_, err = m.Map(nil)
	x.wantError(err, device.ErrNoBuffer, "Map of nil")
}
