package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/nexar-go/nexar/device"
)

// testOrder: work of a stream sees the effects of the work before it, and not of the work behind
// it.
func testOrder(x *check) {
	const size, steps = 64, 20
	s := x.stream()
	a, b := x.alloc(size), x.alloc(size)
	var want [][]byte
	var got []device.Staging
	for range steps {
		data := x.random(size)
		x.must(s.ReceiveInto(x.staged(data), 0, device.Whole(a)), "receive into")
		x.must(s.Copy(device.Whole(b), device.Whole(a)), "copy")
		st := x.stage(size)
		x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
		want, got = append(want, data), append(got, st)
	}
	for i, st := range got {
		x.same(x.bytes(st), want[i], fmt.Sprintf("step %d of %d", i, steps))
	}
	x.wait(s)
	x.want(b, want[steps-1], "after the last step")
}

// testWait: queued work is done when Wait returns.
func testWait(x *check) {
	s := x.stream()
	b := x.alloc(50)
	for i := range 30 {
		data := x.random(50)
		x.must(s.ReceiveInto(x.staged(data), 0, device.Whole(b)), "receive into")
		x.wait(s)
		x.want(b, data, fmt.Sprintf("after Wait %d", i))
	}
	x.wait(s)
}

// testRegionsAreCallers: the caller may change a slice of regions after the call.
func testRegionsAreCallers(x *check) {
	s := x.stream()
	b, data := x.filled(200)
	list := []device.Region{{Buffer: b, Offset: 10, Bytes: 20}, {Buffer: b, Offset: 60, Bytes: 30}}
	out, in := x.stage(50), x.staged(x.random(50))
	x.must(s.StageSend(out, 0, list...), "stage send")
	clear(list)
	x.same(x.bytes(out), append(append([]byte(nil), data[10:30]...), data[60:90]...), "StageSend")

	list = []device.Region{{Buffer: b, Offset: 10, Bytes: 20}, {Buffer: b, Offset: 60, Bytes: 30}}
	x.must(s.ReceiveInto(in, 0, list...), "receive into")
	list[0].Offset, list[1].Offset = 100, 130
	x.wait(s)
	copy(data[10:30], x.bytes(in))
	copy(data[60:90], x.bytes(in)[20:])
	x.want(b, data, "ReceiveInto")
}

// testStagingTwice: several pieces of work may use one staging, and Bytes waits for all of them.
func testStagingTwice(x *check) {
	s := x.stream()
	a, old := x.filled(100)
	b := x.alloc(100)
	st := x.staged(x.random(200))
	first := append([]byte(nil), x.bytes(st)...)
	x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into")
	x.must(s.StageSend(st, 0, device.Whole(a)), "stage send over received bytes")
	x.must(s.StageSend(st, 100, device.Whole(b)), "stage send")
	x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into again")
	x.same(x.bytes(st), append(append([]byte(nil), old...), first[:100]...), "staging")
	x.wait(s)
	x.want(b, old, "buffer")
}

// testFreeBufferInUse: queued work with a freed buffer is done, and the memory is not reused
// before.
func testFreeBufferInUse(x *check) {
	s := x.stream()
	for range 10 {
		a, data := x.filled(500)
		b, st := x.alloc(500), x.stage(500)
		x.must(s.Copy(device.Whole(b), device.Whole(a)), "copy")
		x.must(a.Free(), "free the source")
		x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
		x.must(b.Free(), "free the destination")
		x.filled(500)
		x.filled(500)
		x.same(x.bytes(st), data, "contents of a freed buffer")
	}
}

// testFreeStagingInUse is testFreeBufferInUse for staging memory.
func testFreeStagingInUse(x *check) {
	s := x.stream()
	for range 10 {
		data := x.random(500)
		st, b := x.staged(data), x.alloc(500)
		x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into")
		x.must(st.Free(), "free the source")
		next := x.staged(x.random(500))
		kept := append([]byte(nil), x.bytes(next)...)
		lost := x.stage(500)
		x.must(s.StageSend(lost, 0, device.Whole(b)), "stage send")
		x.must(lost.Free(), "free the destination")
		other := x.staged(kept)
		x.wait(s)
		x.want(b, data, "bytes received from a freed staging")
		x.same(x.bytes(next), kept, "staging allocated after the first Free")
		x.same(x.bytes(other), kept, "staging allocated after the second Free")
	}
}

// testCloseInUse: queued work of a closed stream is done.
func testCloseInUse(x *check) {
	b, data := x.filled(500)
	s, st := x.stream(), x.stage(500)
	x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
	x.must(s.Close(), "close")
	x.same(x.bytes(st), data, "staging of a closed stream")
}

// testConcurrency: goroutines may use the device, a stream and a buffer concurrently.
func testConcurrency(x *check) {
	const workers, rounds, size = 4, 20, 300
	shared, all := x.stream(), x.alloc(workers*size)
	own := make([]device.Stream, workers)
	for i := range own {
		own[i] = x.stream()
	}
	errs := make(chan error, workers)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			w := worker{x.d, rand.New(rand.NewPCG(uint64(i), 3)), [2]device.Stream{own[i], shared}}
			part := device.Region{Buffer: all, Offset: i * size, Bytes: size}
			for round := range rounds {
				if err := w.turn(x.ctx, part, round); err != nil {
					errs <- fmt.Errorf("goroutine %d, round %d: %w", i, round, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		x.Error(err)
	}
}

// A worker is a goroutine of testConcurrency.
type worker struct {
	d       device.Device
	rng     *rand.Rand
	streams [2]device.Stream
}

// turn copies data to part of a shared buffer, from there to a new buffer, and back.
func (w *worker) turn(ctx context.Context, part device.Region, round int) (err error) {
	s := w.streams[round%2]
	own, err := w.d.Alloc(ctx, part.Bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Free()) }()
	in, err := w.d.Stage(ctx, part.Bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Free()) }()
	out, err := w.d.Stage(ctx, part.Bytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Free()) }()

	src, err := in.Bytes(ctx)
	if err != nil {
		return err
	}
	for i := range src {
		src[i] = byte(w.rng.Uint32())
	}
	want := append([]byte(nil), src...)
	err = errors.Join(
		s.ReceiveInto(in, 0, part),
		s.Copy(device.Whole(own), part),
		s.StageSend(out, 0, device.Whole(own)))
	if err != nil {
		return err
	}
	got, err := out.Bytes(ctx)
	if err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
	return s.Wait(ctx)
}
