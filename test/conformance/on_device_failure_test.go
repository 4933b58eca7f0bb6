package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/test/worldtest"
)

var errBroken = errors.New("the device is broken")

// threeRanks are three ranks: rank 1 has its vectors on a device, the others in slices.
type threeRanks struct {
	comms []*nexar.Comm
	fake  *devicetest.Fake
	spot  spot
	ready func() // is called when the buffers are filled, unless it is nil
}

func newThreeRanks(t testing.TB, m worldtest.Medium, cfg devicetest.FakeConfig) threeRanks {
	t.Helper()
	fake := newFake(t, cfg)
	return threeRanks{comms: m.Cluster(t, 3, nexar.Config{}), fake: fake, spot: newSpot(t, fake)}
}

// call makes the collective on all ranks, and passes the error of each to f.
func (r threeRanks) call(t testing.TB, call deviceCall, ctx context.Context, f func(rank int, c *nexar.Comm, err error) error) {
	t.Helper()
	dst := device.Whole(newBuffer(t, r.fake, ramp32(100, call.dst)))
	var src device.Region
	if call.src > 0 {
		src = device.Whole(newBuffer(t, r.fake, ramp32(100, call.src)))
	}
	if r.ready != nil {
		r.ready()
	}
	worldtest.OnAll(t, r.comms, func(rank int, c *nexar.Comm) error {
		if rank == 1 {
			return f(rank, c, call.f(ctx, c.WithStream(r.spot.stream), dst, src))
		}
		return f(rank, c, call.onSlices(t.Context(), c))
	})
}

// onSlices makes the same collective on a rank without a device.
func (call deviceCall) onSlices(ctx context.Context, c *nexar.Comm) error {
	dst, src := make([]int32, call.dst), make([]int32, call.src)
	copy(bytesOf(dst), ramp32(100*c.Rank(), call.dst))
	copy(bytesOf(src), ramp32(100*c.Rank(), call.src))
	switch call.name {
	case "broadcast":
		return nexar.Broadcast(ctx, c, dst, 0)
	case "reduce":
		return nexar.Reduce(ctx, c, dst, nexar.Sum, 0)
	case "all_reduce":
		return nexar.AllReduce(ctx, c, dst, nexar.Sum)
	case "gather":
		return nexar.Gather(ctx, c, dst, src, 0)
	case "all_gather":
		return nexar.AllGather(ctx, c, dst, src)
	case "scatter":
		return nexar.Scatter(ctx, c, dst, src, 0)
	case "reduce_scatter":
		return nexar.ReduceScatter(ctx, c, dst, src, nexar.Sum)
	case "all_to_all":
		return nexar.AllToAll(ctx, c, dst, src)
	case "scan":
		return nexar.Scan(ctx, c, dst, nexar.Sum)
	}
	return nexar.ExclusiveScan(ctx, c, dst, nexar.Sum)
}

// atFault checks that a communicator has ended because of rank 1.
func atFault(ctx context.Context, rank int, c *nexar.Comm, err error, text string) error {
	if rank == 1 {
		return nil
	}
	// The part of a rank may end before those of the others.
	if err == nil {
		err = c.Barrier(ctx)
	}
	r, ok := errors.AsType[*nexar.RevokedError](err)
	if !ok || r.Rank != 1 || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%v, want that the communicator was revoked by rank 1: %q", err, text)
	}
	return nil
}

// isOver checks the errors of later calls on a communicator.
func isOver(ctx context.Context, c *nexar.Comm, text string) error {
	if err := c.Barrier(ctx); !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("a later call: %v, want ErrRevoked with %q", err, text)
	}
	return nil
}

// TestDeviceFailsBefore: a device that fails before the collective has started on its
// rank, even if the rank only receives, revokes the communicator. All ranks get an error
// that names it.
func TestDeviceFailsBefore(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		for i, call := range deviceCalls(0) {
			if worldtest.Brief() && m.Name != worldtest.Mem().Name && i%4 != 0 {
				continue // A brief test makes each call over memory, and some over QUIC.
			}
			t.Run(m.Name+"/"+call.name, func(t *testing.T) {
				r := newThreeRanks(t, m, devicetest.FakeConfig{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				r.ready = func() { r.fake.FailCopy(1, errBroken) }
				r.call(t, call, ctx, func(rank int, c *nexar.Comm, err error) error {
					if rank == 1 {
						e, ok := errors.AsType[*nexar.DeviceError](err)
						_, stream := errors.AsType[*device.StreamError](err)
						if !ok || e.Device != "fake" || !stream || !errors.Is(err, errBroken) || !strings.HasPrefix(err.Error(), "nexar: "+call.name+": device fake: ") {
							return fmt.Errorf("%v, want a DeviceError of %v", err, errBroken)
						}
					}
					return errors.Join(atFault(ctx, rank, c, err, errBroken.Error()), isOver(ctx, c, errBroken.Error()))
				})
			})
		}
	}
}

// TestStreamFailedBefore: a stream that has failed is detected before other ranks depend
// on this one.
func TestStreamFailedBefore(t *testing.T) {
	for _, call := range deviceCalls(0) {
		r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
		b := newBuffer(t, r.fake, ramp32(0, 2))
		r.ready = func() {
			r.fake.FailCopy(1, errBroken)
			if err := r.spot.stream.Copy(device.Region{Buffer: b, Bytes: 4}, device.Region{Buffer: b, Offset: 4, Bytes: 4}); err != nil {
				t.Fatal(err)
			}
		}
		r.call(t, call, t.Context(), func(rank int, c *nexar.Comm, err error) error {
			if rank == 1 && !errors.Is(err, errBroken) {
				return fmt.Errorf("%v, want %v", err, errBroken)
			}
			return atFault(t.Context(), rank, c, err, errBroken.Error())
		})
	}
}

// TestDeviceFailsAfter: a device that fails when the result is stored is an error of its
// rank alone.
func TestDeviceFailsAfter(t *testing.T) {
	for _, call := range deviceCalls(0) {
		if call.in == 0 {
			continue
		}
		t.Run(call.name, func(t *testing.T) {
			r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
			r.spot.stream = hookedStream{Stream: r.spot.stream, storing: func() { r.fake.FailCopy(1, errBroken) }}
			r.call(t, call, t.Context(), func(rank int, c *nexar.Comm, err error) error {
				if rank != 1 {
					return err
				}
				if _, ok := errors.AsType[*nexar.DeviceError](err); !ok || !errors.Is(err, errBroken) {
					return fmt.Errorf("%v, want a DeviceError of %v", err, errBroken)
				}
				return nil
			})
			worldtest.CheckWorks(t, r.comms)
		})
	}
}

// TestNoStagingMemory: a device without enough staging memory cannot take part, and the
// other ranks get an error that says so.
func TestNoStagingMemory(t *testing.T) {
	for _, call := range deviceCalls(0) {
		t.Run(call.name, func(t *testing.T) {
			for _, less := range []int{0, 1} {
				r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{StagingMemory: call.memory - less})
				r.call(t, call, t.Context(), func(rank int, c *nexar.Comm, err error) error {
					if less == 0 {
						return err
					}
					if rank == 1 && !errors.Is(err, device.ErrNoMemory) {
						return fmt.Errorf("%v, want %v", err, device.ErrNoMemory)
					}
					return atFault(t.Context(), rank, c, err, "out of memory")
				})
			}
		})
	}
}

// TestDeviceFailsAtMessage: a failure of the device at a message fails this message
// alone.
func TestDeviceFailsAtMessage(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	fake := newFake(t, devicetest.FakeConfig{StagingMemory: 40})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	buffer := newBuffer(t, fake, ramp32(0, 11))
	r := device.Region{Buffer: buffer, Bytes: 40}
	send := func(d nexar.DeviceComm) error { return d.Send(ctx, i32, 0, 5, r) }
	recv := func(d nexar.DeviceComm) error {
		_, err := d.Recv(ctx, i32, 0, 5, r)
		return err
	}
	for name, test := range map[string]struct {
		f    func(d nexar.DeviceComm) error
		copy int
		lost int // messages to rank 1
	}{
		"send":                 {send, 1, 0},
		"recv, before":         {recv, 1, 0},
		"recv, when it stores": {recv, 2, 1},
	} {
		s := newSpot(t, fake)
		for range test.lost {
			if err := nexar.Send(ctx, comms[0], []int32{1, 2}, 1, 5); err != nil {
				t.Fatal(err)
			}
		}
		fake.FailCopy(test.copy, errBroken)
		if err := test.f(comms[1].WithStream(s.stream)); !errors.Is(err, errBroken) {
			t.Errorf("%s: %v, want %v", name, err, errBroken)
		}
		s = newSpot(t, fake)
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 {
				return errors.Join(nexar.Send(ctx, c, []int32{3}, 1, 5), worldtest.RecvError(ctx, c, 1, 6))
			}
			d := c.WithStream(s.stream)
			status, err := d.Recv(ctx, i32, 0, 5, r)
			if err == nil && status.Count != 1 {
				err = fmt.Errorf("received %d elements of another message", status.Count)
			}
			return errors.Join(err, d.Send(ctx, i32, 0, 6, device.Region{Buffer: buffer, Bytes: 4}))
		})
	}
	d := comms[1].WithStream(newSpot(t, fake).stream)
	r.Bytes = 44
	for name, err := range map[string]error{"send": send(d), "recv": recv(d)} {
		if !errors.Is(err, device.ErrNoMemory) {
			t.Errorf("%s beyond the staging memory: %v", name, err)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// A hookedStream calls functions before results are stored, and after data to send has
// been queued.
type hookedStream struct {
	device.Stream
	storing, loading func()
}

func (s hookedStream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	if s.storing != nil {
		s.storing()
	}
	return s.Stream.ReceiveInto(src, at, dst...)
}

func (s hookedStream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	err := s.Stream.StageSend(dst, at, src...)
	if s.loading != nil {
		s.loading()
	}
	return err
}

// TestCancelledBeforeDeviceIsDone: a context that ends before the collective has started
// on this rank revokes the communicator: before the call, while it waits for staging
// memory, and while its input is staged. The device keeps the memory until it has
// finished.
func TestCancelledBeforeDeviceIsDone(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, r *threeRanks, bytes int, cancel func()) (used int){
		"before": func(_ *testing.T, r *threeRanks, _ int, cancel func()) int {
			r.ready = cancel
			return 0
		},
		"memory": func(t *testing.T, r *threeRanks, bytes int, cancel func()) int {
			st, err := r.fake.Stage(t.Context(), bytes)
			if err != nil {
				t.Fatal(err)
			}
			b := device.Whole(newBuffer(t, r.fake, make([]byte, bytes)))
			if err := errors.Join(r.spot.stream.StageSend(st, 0, b), st.Free()); err != nil {
				t.Fatal(err)
			}
			r.ready = func() { time.AfterFunc(5*time.Millisecond, cancel) }
			return bytes
		},
		"load": func(_ *testing.T, r *threeRanks, bytes int, cancel func()) int {
			r.spot.stream = hookedStream{Stream: r.spot.stream, loading: cancel}
			return bytes
		},
	} {
		for _, call := range deviceCalls(0) {
			t.Run(name+"/"+call.name, func(t *testing.T) {
				r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{StagingMemory: call.memory})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				release := r.fake.Hold()
				used := prepare(t, &r, call.memory, func() { cancel(worldtest.ErrCancelled) })
				r.call(t, call, ctx, func(rank int, c *nexar.Comm, err error) error {
					if rank == 1 && (!errors.Is(err, worldtest.ErrCancelled) || !errors.Is(err, context.Canceled)) {
						return fmt.Errorf("%v, want %v", err, worldtest.ErrCancelled)
					}
					return atFault(t.Context(), rank, c, err, "its call was cancelled: "+worldtest.ErrCancelled.Error())
				})
				r.keeps(t, used)
				release()
				r.isDone(t)
			})
		}
	}
}

// TestCommEndsWhileDeviceLoads: a rank that waits for its device gets the failure of
// another rank at once.
func TestCommEndsWhileDeviceLoads(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, d nexar.DeviceComm, r device.Region) error{
		"all_reduce": func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
			return d.AllReduce(ctx, i32, r, nexar.Sum)
		},
		"send": func(ctx context.Context, d nexar.DeviceComm, r device.Region) error { return d.Send(ctx, i32, 0, 0, r) },
		"recv": func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
			_, err := d.Recv(ctx, i32, 0, 0, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
			buffer := newBuffer(t, r.fake, ramp32(0, 10))
			release := r.fake.Hold()
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(worldtest.ErrCancelled)
			hooked := hookedStream{Stream: r.spot.stream, loading: func() {
				if err := r.comms[2].Barrier(ended); !errors.Is(err, worldtest.ErrCancelled) {
					t.Error(err)
				}
			}}
			ctx, stop := context.WithTimeout(t.Context(), worldtest.Patience)
			defer stop()
			err := f(ctx, r.comms[1].WithStream(hooked), device.Whole(buffer))
			if _, ok := errors.AsType[*nexar.DeviceError](err); ok || ctx.Err() != nil {
				t.Errorf("error %v: want no DeviceError, before the end of the test", err)
			}
			if e, ok := errors.AsType[*nexar.RevokedError](err); !ok || e.Rank != 2 || !strings.HasPrefix(err.Error(), "nexar: "+name+": communicator revoked by rank 2") {
				t.Errorf("%v, want that rank 2 has revoked the communicator", err)
			}
			r.keeps(t, 40)
			release()
			r.isDone(t)
		})
	}
}

// keeps checks that the device still uses the given amount of staging memory, and no more.
func (r threeRanks) keeps(t testing.TB, used int) {
	t.Helper()
	if s := r.fake.Stats(); s.Stagings != 0 || s.StagingMemory != used {
		t.Errorf("%d stagings were not freed, and %d bytes are in use, want %d", s.Stagings, s.StagingMemory, used)
	}
}

// isDone waits for the device, and checks that it keeps nothing.
func (r threeRanks) isDone(t testing.TB) {
	t.Helper()
	if err := r.spot.stream.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	r.keeps(t, 0)
}

// TestCancelledBecauseOfDevice: the cause of a context may be an error of a device. The
// call still reports the end of its context.
func TestCancelledBecauseOfDevice(t *testing.T) {
	r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&nexar.DeviceError{Device: "other", Err: device.ErrFreed})
	r.call(t, deviceCalls(0)[2], ctx, func(rank int, c *nexar.Comm, err error) error {
		if rank == 1 && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%v, want %v", err, context.Canceled)
		}
		return atFault(t.Context(), rank, c, err, "its call was cancelled: "+device.ErrFreed.Error())
	})
}

// TestCancelledDuringDeviceCall: a context that ends during the collective revokes the
// communicator, as with slices, and leaves the buffer unchanged.
func TestCancelledDuringDeviceCall(t *testing.T) {
	r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
	buffer := newBuffer(t, r.fake, ramp32(0, 100_000))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, worldtest.ErrCancelled)
	defer cancel()
	if err := r.comms[1].WithStream(r.spot.stream).AllReduce(ctx, i32, device.Whole(buffer), nexar.Sum); !errors.Is(err, worldtest.ErrCancelled) {
		t.Errorf("%v, want %v", err, worldtest.ErrCancelled)
	}
	for _, rank := range []int{0, 2} {
		err := nexar.AllReduce(t.Context(), r.comms[rank], make([]int32, 100_000), nexar.Sum)
		if err := atFault(t.Context(), rank, r.comms[rank], err, worldtest.ErrCancelled.Error()); err != nil {
			t.Error(err)
		}
	}
	r.isDone(t)
	if !slices.Equal(contents(t, buffer), ramp32(0, 100_000)) {
		t.Error("the buffer was written")
	}
}

// TestCancelledWhenStoring: a context that ends while the result is stored is an error of
// this rank alone. The device still stores it.
func TestCancelledWhenStoring(t *testing.T) {
	r := newThreeRanks(t, worldtest.Mem(), devicetest.FakeConfig{})
	buffer := newBuffer(t, r.fake, ramp32(0, 10))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var release func()
	hooked := hookedStream{Stream: r.spot.stream, storing: func() {
		release = r.fake.Hold()
		cancel(worldtest.ErrCancelled)
	}}
	worldtest.OnAll(t, r.comms, func(rank int, c *nexar.Comm) error {
		if rank != 1 {
			return nexar.AllReduce(t.Context(), c, make([]int32, 10), nexar.Sum)
		}
		if err := c.WithStream(hooked).AllReduce(ctx, i32, device.Whole(buffer), nexar.Sum); !errors.Is(err, worldtest.ErrCancelled) || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%v, want %v", err, worldtest.ErrCancelled)
		}
		return nil
	})
	worldtest.CheckWorks(t, r.comms)
	r.keeps(t, 40)
	release()
	r.isDone(t)
	if got := contents(t, buffer); !slices.Equal(got, ramp32(0, 10)) {
		t.Errorf("stored %v, want %v", got, ramp32(0, 10))
	}
}
