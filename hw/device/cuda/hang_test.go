package cuda_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// TestHang: a call of the driver that does not return fails all calls of the device, and Close returns.
func TestHang(t *testing.T) {
	fake := cudafake.New(t)
	d, err := cuda.Open(1, cuda.Config{Library: fake.Path, CallTimeout: 200 * time.Millisecond})
	must(t, err)
	s, err := d.NewStream()
	must(t, err)
	b := filled(t, d, pattern(100))
	release := fake.Hang("cuMemcpyDtoDAsync_v2")
	hangs := func() error {
		return s.Copy(device.Region{Buffer: b, Bytes: 10}, device.Region{Buffer: b, Offset: 50, Bytes: 10})
	}
	must(t, hangs())
	for _, call := range []func() error{func() error { return s.Wait(t.Context()) }, hangs} {
		err = call()
		if err == nil || !strings.Contains(err.Error(), "device cuda:1") || !strings.Contains(err.Error(), "has not returned from Copy of 10 bytes for 200ms") {
			t.Errorf("%v, want an error that names the call", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := d.Alloc(ctx, 10); err == nil {
		t.Error("Alloc of a device that hangs succeeds")
	}
	cancel()
	if err := d.CopyIn(t.Context(), device.Whole(b), pattern(100)); err == nil {
		t.Error("CopyIn of a device that hangs succeeds")
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("Close: %v", err)
	}
	release()
}

// TestHangOfOpen: Open returns if the driver does not.
func TestHangOfOpen(t *testing.T) {
	fake := cudafake.New(t)
	before := fake.Live()
	for _, call := range []string{"cuInit", "cuDevicePrimaryCtxRetain"} {
		release := fake.Hang(call)
		ended := make(chan error, 1)
		go func() {
			_, err := cuda.Open(0, cuda.Config{Library: fake.Path, CallTimeout: 200 * time.Millisecond})
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "device cuda:0: the CUDA driver has not returned from the initialization") {
				t.Errorf("%s hangs: %v, want an error that says so", call, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s hangs, and so does Open", call)
		}
		release()
	}
	for end := time.Now().Add(time.Minute); fake.Live() != before && time.Now().Before(end); { // The thread ends later.
		time.Sleep(time.Millisecond)
	}
	if n := fake.Live(); n != before {
		t.Errorf("%d things of the driver remain", n-before)
	}
}

// TestSlowMemory: the driver may wait for the work of the GPU when it allocates or frees memory. Meanwhile calls that do not
// need the driver return, and others end with their contexts.
func TestSlowMemory(t *testing.T) {
	for call, begin := range map[string]func(d *cuda.Device, b device.Buffer) error{
		"cuMemAlloc_v2": func(d *cuda.Device, _ device.Buffer) error {
			_, err := d.Alloc(t.Context(), 1<<20)
			return err
		},
		"cuMemFree_v2": func(_ *cuda.Device, b device.Buffer) error { return b.Free() },
	} {
		t.Run(call, func(t *testing.T) {
			d, fake := open(t, 0, cuda.Config{Cache: -1})
			s, err := d.NewStream()
			must(t, err)
			_, err = cuda.Handle(s) // from now on Wait queues work
			must(t, err)
			a, b := filled(t, d, pattern(100)), filled(t, d, pattern(100))
			calls := fake.Calls(call)
			release := fake.Hang(call)
			defer release()
			begun := make(chan error, 1)
			go func() { begun <- begin(d, b) }()
			for fake.Calls(call) == calls {
				time.Sleep(time.Millisecond)
			}
			ended := make(chan error)
			go func() {
				_, err := cuda.Pointer(a)
				ended <- err
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(10*time.Millisecond, cancel)
				ended <- s.Wait(ctx)
				ended <- s.Wait(ctx)
			}()
			for _, want := range []error{nil, context.Canceled, context.Canceled} {
				select {
				case err := <-ended:
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("a call waits for the driver")
				}
			}
			release()
			must(t, <-begun)
			must(t, s.Wait(t.Context()))
		})
	}
}
