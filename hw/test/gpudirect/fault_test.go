//go:build linux

package gpudirect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/transport/rdma"
)

// long is the length of a message that takes several segments.
const long = 3 << 20

// TestRefused: when the memory of a GPU cannot be registered, vectors are copied through the host, and the log says why, once.
func TestRefused(t *testing.T) {
	f := newFakes(t)
	f.verbs.Refuse(true, true)
	read, written := f.verbs.Read(), f.verbs.Written()
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		for range 2 {
			if err := exchange(ctx, r, device.Whole(b)); err != nil {
				return err
			}
		}
		if err := r.check("message", device.Whole(b), pattern(long, 0)); err != nil {
			return err
		}
		for _, c := range moving(2) {
			if err := perform(ctx, r, c); err != nil {
				return err
			}
		}
		if got := r.Peers()[0].DeviceMemory; got != "staged" {
			return fmt.Errorf("Peer.DeviceMemory is %q, want staged", got)
		}
		const text = "memory of a device is copied through memory of the host"
		if log := r.log.String(); strings.Count(log, text) != 1 || !strings.Contains(log, "ibv_reg_dmabuf_mr") {
			return fmt.Errorf("the log has not the refusal with its reason, once:\n%s", log)
		}
		r.wait(ctx)
		return nil
	})
	if n := f.verbs.Registered(); n != 0 || f.verbs.Read() != read || f.verbs.Written() != written {
		t.Errorf("%d registrations of memory of a GPU, of which %d bytes were read and %d written; want none",
			n, f.verbs.Read()-read, f.verbs.Written()-written)
	}
}

// TestMixedWorld: ranks with RDMA, without it, and with slices take part in the same collectives and exchange messages. Each
// peer has the method that works for it.
func TestMixedWorld(t *testing.T) {
	f := newFakes(t)
	const n = 4 // rank 2 has no RDMA, rank 3 has slices
	inWorldOf(t, f, n, func(rank int) bool { return rank != 2 }, func(ctx context.Context, r *rank) error {
		for _, c := range append(moving(n), summing(n)) {
			if r.me() == 3 {
				if err := withSlices(ctx, r, c); err != nil {
					return err
				}
			} else if err := perform(ctx, r, c); err != nil {
				return err
			}
		}
		if r.me() != 0 {
			r.wait(ctx)
			return nil
		}
		for _, p := range r.Peers() {
			if want := map[bool]string{true: rdma.MethodDMABuf, false: "staged"}[p.Rank != 2]; p.DeviceMemory != want {
				return fmt.Errorf("Peer.DeviceMemory of rank %d is %q, want %q", p.Rank, p.DeviceMemory, want)
			}
		}
		r.wait(ctx)
		return nil
	})
}

// withSlices is perform with memory of the host.
func withSlices(ctx context.Context, r *rank, c call) error {
	dst, src := pattern(c.dst, r.me()), pattern(c.src, r.me())
	r.wait(ctx)
	var err error
	switch w, root := r.World(), r.World().Size()-1; c.name {
	case "broadcast":
		err = nexar.Broadcast(ctx, w, dst, root)
	case "all-gather":
		err = nexar.AllGather(ctx, w, dst, src)
	case "all-to-all":
		err = nexar.AllToAll(ctx, w, dst, src)
	case "gather":
		err = nexar.Gather(ctx, w, dst, src, root)
	case "all-reduce":
		err = nexar.AllReduce(ctx, w, dst, nexar.Sum)
	case "scatter":
		err = nexar.Scatter(ctx, w, dst, src, root)
	}
	if want := c.want(r.me(), r.World().Size()); err == nil && string(dst[:len(want)]) != string(want) {
		err = errors.New(c.name + ": wrong bytes")
	}
	return err
}

// awaitHeld waits until a remote write is held.
func awaitHeld(ctx context.Context, f fakes) error {
	for f.verbs.Held() == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return errors.New("no remote write begins")
		}
	}
	return nil
}

// TestQueuePairFails: when the queue pairs fail during a message or a collective, the rest goes through the host over the control
// connection.
func TestQueuePairFails(t *testing.T) {
	for _, c := range moving(2)[:3] {
		t.Run(c.name, func(t *testing.T) {
			f := newFakes(t)
			inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
				b := r.buffer(long)
				r.fill(b, r.me())
				if r.me() == 0 {
					f.verbs.Hold(true)
					go func() {
						if awaitHeld(ctx, f) == nil {
							f.verbs.Fail()
							f.verbs.Hold(false)
						}
					}()
				}
				if err := exchange(ctx, r, device.Whole(b)); err != nil {
					return err
				}
				if err := r.check("message", device.Whole(b), pattern(long, 0)); err != nil {
					return err
				}
				return perform(ctx, r, c)
			})
		})
	}
	t.Run("during a collective", func(t *testing.T) {
		f := newFakes(t)
		c := moving(2)[1]
		inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
			broken := c
			broken.run = func(ctx context.Context, r *rank, dst, src device.Region) error {
				if r.me() == 0 {
					f.verbs.Hold(true)
					go func() {
						if awaitHeld(ctx, f) == nil {
							f.verbs.Fail()
							f.verbs.Hold(false)
						}
					}()
				}
				return c.run(ctx, r, dst, src)
			}
			return perform(ctx, r, broken)
		})
	})
}

// TestCancelledReceive: when a receive is cancelled while the network card writes, its memory is reused only when the card can no
// longer write it.
func TestCancelledReceive(t *testing.T) {
	f := newFakes(t)
	f.verbs.Refuse(true, false) // With peer memory the fake notices accesses to freed memory.
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		f.verbs.Hold(true)
		if r.me() == 0 {
			if err := r.on().Send(ctx, device.Uint8, 1, 7, device.Whole(b)); err == nil {
				return errors.New("the message is sent, although its receiver has given up")
			}
			return nil
		}
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			_ = awaitHeld(ctx, f)
			_ = b.Free() // takes effect after the call
			cancel()
		}()
		_, err := r.on().Recv(limited, device.Uint8, 0, 7, device.Whole(b))
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the error is %v, want that of the context", err)
		}
		again := r.buffer(long)
		r.fill(again, 42)
		f.verbs.Hold(false)
		if err := r.gpu.FlushWrites(ctx); err != nil {
			return err
		}
		return r.check("reused memory", device.Whole(again), pattern(long, 42))
	})
}

// TestCancelledSend: a cancelled send returns when the network card no longer reads the memory.
func TestCancelledSend(t *testing.T) {
	f := newFakes(t)
	f.verbs.Refuse(true, false) // With peer memory the fake notices accesses to freed memory.
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		if r.me() == 1 {
			_, err := r.on().Recv(ctx, device.Uint8, 0, 7, device.Whole(b))
			if _, ok := errors.AsType[*nexar.RevokedError](err); err != nil && !ok {
				return fmt.Errorf("the error is %v, want a RevokedError or none", err)
			}
			return nil
		}
		f.verbs.Hold(true)
		sending, cancel := context.WithCancel(ctx)
		defer cancel()
		returned := make(chan error, 1)
		go func() { returned <- r.on().Send(sending, device.Uint8, 1, 7, device.Whole(b)) }()
		if err := awaitHeld(ctx, f); err != nil {
			return err
		}
		_ = b.Free() // takes effect after the call
		cancel()
		time.Sleep(50 * time.Millisecond) // A call that does not wait for the card would return, and its memory be freed.
		f.verbs.Hold(false)
		if err := <-returned; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the error is %v, want that of the context or none", err)
		}
		return nil
	})
}

// TestPeerEnds: when a node is closed during a transfer, its peer gets an error that names it, and the network card writes no
// more.
func TestPeerEnds(t *testing.T) {
	f := newFakes(t)
	f.verbs.Refuse(true, false)
	f.silence = 8 * time.Second // The goodbye is held too.
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		if r.me() == 1 {
			_, err := r.on().Recv(ctx, device.Uint8, 0, 7, device.Whole(b))
			if peer, ok := errors.AsType[*nexar.PeerError](err); !ok || peer.Rank != 0 {
				return fmt.Errorf("the error is %v, want a PeerError of rank 0", err)
			}
			return b.Free()
		}
		f.verbs.Hold(true)
		returned := make(chan error, 1)
		go func() { returned <- r.on().Send(ctx, device.Uint8, 1, 7, device.Whole(b)) }()
		if err := awaitHeld(ctx, f); err != nil {
			return err
		}
		err := r.Node.Close()
		if <-returned == nil {
			err = errors.Join(err, errors.New("the message is sent after the end of its node"))
		}
		f.verbs.Hold(false)
		return err
	})
}

// TestNoWorkMemory: when the GPU has no memory for the operands of a reduction, the vector is staged.
func TestNoWorkMemory(t *testing.T) {
	f := newFakes(t)
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		var full []device.Buffer
		for size := 256 << 20; size >= 1<<20; size /= 2 {
			for {
				more, err := r.gpu.Alloc(ctx, size)
				if err != nil {
					break
				}
				full = append(full, more)
			}
		}
		r.wait(ctx)
		before := f.traffic()
		r.wait(ctx)
		if err := r.on().AllReduce(ctx, device.Uint8, device.Whole(b), nexar.Sum); err != nil {
			return err
		}
		if moved := f.traffic().minus(before); moved.staged == 0 || len(full) == 0 {
			return fmt.Errorf("with %d buffers nothing was staged", len(full))
		}
		want, other := pattern(long, 0), pattern(long, 1)
		for i := range want {
			want[i] += other[i]
		}
		r.wait(ctx)
		return r.check("sum", device.Whole(b), want)
	})
}

// holdStream stops the stream of a rank when a payload is on its way, so that its reduction is queued and not done. It calls
// queued then.
func holdStream(ctx context.Context, r *rank, queued func()) (release func(), err error) {
	h, err := cuda.Handle(r.stream)
	if err != nil {
		return nil, err
	}
	launches := r.cuda.Calls("cuLaunchKernel")
	r.verbs.Hold(true)
	var held sync.WaitGroup
	held.Go(func() {
		if awaitHeld(ctx, r.fakes) == nil {
			r.cuda.Hold(cudadriver.Stream(h), true)
		}
		r.verbs.Hold(false)
		for r.cuda.Calls("cuLaunchKernel") == launches && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		queued()
	})
	return func() {
		r.cuda.Hold(cudadriver.Stream(h), false)
		held.Wait()
	}, nil
}

// TestCancelledReduction: work memory of a cancelled call, which queued kernels still use, is not given to the next call.
func TestCancelledReduction(t *testing.T) {
	f := newFakes(t)
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		other, err := r.World().Dup(ctx)
		if err != nil {
			return err
		}
		b, second := r.buffer(long), r.buffer(long)
		r.fill(b, r.me())
		r.fill(second, r.me())
		r.wait(ctx)
		limited, cancel := context.WithCancel(ctx)
		defer cancel()
		if r.me() == 0 {
			release, err := holdStream(ctx, r, cancel)
			if err != nil {
				return err
			}
			defer release()
		}
		err = r.on().AllReduce(limited, device.Uint8, device.Whole(b), nexar.Sum)
		if r.me() == 0 && !errors.Is(err, context.Canceled) || r.me() == 1 && err != nil && !errors.Is(err, nexar.ErrRevoked) {
			return fmt.Errorf("the error is %v, want that of the context on rank 0, and none or ErrRevoked on rank 1", err)
		}
		free, err := r.gpu.NewStream()
		if err != nil {
			return err
		}
		if err := other.Barrier(ctx); err != nil {
			return err
		}
		allocations := r.cuda.Calls("cuMemAlloc_v2")
		if err := other.Barrier(ctx); err != nil {
			return err
		}
		if err := other.WithStream(free).AllReduce(ctx, device.Uint8, device.Whole(second), nexar.Sum); err != nil {
			return err
		}
		if r.me() == 0 && r.cuda.Calls("cuMemAlloc_v2") == allocations {
			return errors.New("the next call uses the work memory of the cancelled one")
		}
		want := pattern(long, 0)
		for i, v := range pattern(long, 1) {
			want[i] += v
		}
		if err := r.check("sum", device.Whole(second), want); err != nil {
			return err
		}
		return other.Barrier(ctx)
	})
}

// TestDeviceFails: when a GPU fails in a collective, its rank gets a DeviceError, and the other one is told.
func TestDeviceFails(t *testing.T) {
	f := newFakes(t)
	var failed, told atomic.Int32
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		other, err := r.World().Dup(ctx)
		if err != nil {
			return err
		}
		b := r.buffer(long)
		r.fill(b, r.me())
		if r.me() == 0 {
			f.cuda.Fail("cuLaunchKernel", 1, 1) // of either rank
		}
		r.wait(ctx)
		err = r.on().AllReduce(ctx, device.Uint8, device.Whole(b), nexar.Sum)
		if _, ok := errors.AsType[*nexar.DeviceError](err); ok {
			failed.Add(1)
		} else if errors.Is(err, nexar.ErrRevoked) && strings.Contains(err.Error(), "its device failed") {
			told.Add(1)
		} else {
			return fmt.Errorf("the error is %v, want a DeviceError, or ErrRevoked with the failure", err)
		}
		return other.Barrier(ctx)
	})
	if failed.Load() != 1 || told.Load() != 1 {
		t.Errorf("%d ranks have a DeviceError and %d are told, want one each", failed.Load(), told.Load())
	}
}

// TestDeviceHangs: a GPU that does not end its work in a collective does not switch off the timeout of the call.
func TestDeviceHangs(t *testing.T) {
	f := newFakes(t)
	f.timeout = 2 * time.Second
	inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
		b := r.buffer(long)
		r.fill(b, r.me())
		r.wait(ctx)
		if r.me() == 0 {
			release, err := holdStream(ctx, r, func() {})
			if err != nil {
				return err
			}
			defer release()
		}
		err := r.on().AllReduce(ctx, device.Uint8, device.Whole(b), nexar.Sum)
		if _, ok := errors.AsType[*nexar.TimeoutError](err); r.me() == 0 && !ok {
			return fmt.Errorf("the error is %v, want a TimeoutError", err)
		}
		return nil
	})
}
