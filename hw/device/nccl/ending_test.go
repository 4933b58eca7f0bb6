package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// limit is a context that ends much later than a call should. Then the call has the error tooLate.
func limit(t *testing.T, after time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), after, errTooLate)
	t.Cleanup(cancel)
	return ctx
}

var errTooLate = errors.New("too late")

// TestLateRank: a rank that does not call does not make the others wait beyond their timeout, and the Group
// cannot be used after that.
func TestLateRank(t *testing.T) {
	library := cudafake.NCCL(t)
	ranks := world(t, []string{"a", "a", "b", "b"}, library, nccl.Config{Timeout: 2 * time.Second})
	ctx := limit(t, 20*time.Second)
	each(t, ranks, func(i int, r *rank) error {
		if i == 3 {
			return nil
		}
		_, err := r.on(t.Context(), vector(device.Int32, 0, 100), func(b device.Buffer) error {
			return r.group.AllReduce(ctx, device.Int32, device.Whole(b), nexar.Sum)
		})
		if err == nil || !strings.HasPrefix(err.Error(), "nccl: all_reduce: ") || !strings.Contains(err.Error(), "the call takes longer than the timeout 2s") {
			return fmt.Errorf("%v, want an error of the timeout", err)
		}
		err = r.group.Broadcast(t.Context(), device.Int32, device.Region{Buffer: must(r.gpu.Alloc(t.Context(), 4)), Bytes: 4}, 0)
		if !errors.Is(err, nccl.ErrAborted) {
			return fmt.Errorf("second call: %v, want ErrAborted", err)
		}
		return nil
	})
}

// joined returns the communicators of n nodes in this process that detect silence after a time.
func joined(t *testing.T, n int, silence time.Duration) []*nexar.Comm {
	t.Helper()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: n, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seed.Close() })
	comms := make([]*nexar.Comm, n)
	var all sync.WaitGroup
	for i := range comms {
		all.Go(func() {
			node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Rank: &i, HeartbeatTimeout: silence})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { node.Close() })
			comms[i] = node.World()
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return comms
}

// TestCauseOfRemoteError: when NCCL reports a failed connection before nexar knows the rank that has failed, calls wait
// for the error that names it.
func TestCauseOfRemoteError(t *testing.T) {
	library := cudafake.NCCL(t)
	fake := cudafake.ControlNCCL(t, library)
	ranks := worldOf(t, joined(t, 3, time.Minute), []string{"a", "a", "a"}, library, nccl.Config{})
	groups, reports := fake.Groups(), fake.RemoteErrors()
	ended := make(chan error, 2)
	for i, r := range ranks[:2] {
		go func() {
			_, err := r.on(t.Context(), vector(device.Float32, i, 999), func(b device.Buffer) error {
				return r.group.AllReduce(t.Context(), device.Float32, device.Whole(b), nexar.Sum)
			})
			ended <- err
		}()
	}
	until(t, "the calls of NCCL", func() bool { return fake.Groups() == groups+4 }) // two of each rank
	fake.Cut()
	until(t, "the error of NCCL", func() bool { return fake.RemoteErrors() >= reports+2 })
	select {
	case err := <-ended:
		t.Fatalf("a call has ended before the rank was known that has failed: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	failed, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("this rank fails"))
	_, err := ranks[2].on(t.Context(), vector(device.Float32, 2, 999), func(b device.Buffer) error {
		return ranks[2].group.AllReduce(failed, device.Float32, device.Whole(b), nexar.Sum)
	})
	if err == nil {
		t.Error("the call of rank 2 has no error")
	}
	for range 2 {
		if e, ok := errors.AsType[*nexar.RevokedError](<-ended); !ok || e.Rank != 2 {
			t.Errorf("error %v, want one that names rank 2", e)
		}
	}
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := limit(t, time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// TestRemoteErrorWithoutCause: when NCCL reports a failed connection and all ranks live, calls end with the error of NCCL
// within 5 s and the heartbeat timeout, which is 0 in one process.
func TestRemoteErrorWithoutCause(t *testing.T) {
	library := cudafake.NCCL(t)
	fake := cudafake.ControlNCCL(t, library)
	ranks := world(t, []string{"a", "a", "a"}, library, nccl.Config{})
	groups := fake.Groups()
	ctx := limit(t, 9*time.Second)
	ended := make(chan error, 2)
	for i, r := range ranks[:2] {
		go func() {
			_, err := r.on(t.Context(), vector(device.Float32, i, 999), func(b device.Buffer) error {
				return r.group.AllReduce(ctx, device.Float32, device.Whole(b), nexar.Sum)
			})
			ended <- err
		}()
	}
	until(t, "the calls of NCCL", func() bool { return fake.Groups() == groups+4 })
	fake.Cut()
	for range 2 {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "remote process exited") {
			t.Errorf("error %v, want that of NCCL", err)
		}
	}
}

// TestFailureWhileGPUIsBusy: when a rank fails, the calls of the others end, also while the thread of their GPU is in a call of
// the driver. Such a call may wait for NCCL.
func TestFailureWhileGPUIsBusy(t *testing.T) {
	library := cudafake.NCCL(t)
	ranks := world(t, []string{"a", "a"}, library, nccl.Config{})
	entered, leave := make(chan struct{}), make(chan struct{})
	busy, ended := make(chan error, 1), make(chan error, 1)
	ranks[0].group.OnQueued(sync.OnceFunc(func() { // NCCL waits for rank 1 from now on.
		go func() {
			busy <- ranks[0].gpu.(*cuda.Device).Do(t.Context(), "other work", func() error { close(entered); <-leave; return nil })
		}()
		<-entered
	}))
	b, err := ranks[0].gpu.Alloc(t.Context(), 4000)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- ranks[0].group.AllReduce(t.Context(), device.Float32, device.Whole(b), nexar.Sum) }()
	<-entered
	time.Sleep(200 * time.Millisecond) // The call asks for the state of NCCL now, on the thread of the GPU.
	failed, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("this rank fails"))
	_, err = ranks[1].on(t.Context(), vector(device.Float32, 1, 1000), func(b device.Buffer) error {
		return ranks[1].group.AllReduce(failed, device.Float32, device.Whole(b), nexar.Sum)
	})
	if err == nil {
		t.Error("the call of rank 1 has no error")
	}
	select {
	case err := <-ended:
		if e, ok := errors.AsType[*nexar.RevokedError](err); !ok || e.Rank != 1 {
			t.Errorf("error %v, want one that names rank 1", err)
		}
		close(leave)
	case <-time.After(30 * time.Second):
		t.Error("the call of rank 0 waits for the thread of its GPU")
		close(leave)
		<-ended
	}
	if err := <-busy; err != nil {
		t.Error(err)
	}
}
