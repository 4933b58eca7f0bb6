package cuda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// pair opens both GPUs of the fake driver. The test closes them.
func pair(t *testing.T) (a, b *cuda.Device, fake *cudafake.Fake) {
	fake = cudafake.New(t)
	a, err := cuda.Open(0, cuda.Config{Library: fake.Path})
	must(t, err)
	b, err = cuda.Open(1, cuda.Config{Library: fake.Path})
	must(t, err)
	return a, cuda.Controlled(t, b, fake), fake
}

// TestCloseOfLentMemory: a GPU whose memory another one accesses stays open, with an error that names the other one. When
// that has freed its buffer, or is closed, Close succeeds.
func TestCloseOfLentMemory(t *testing.T) {
	for name, end := range map[string]func(b *cuda.Device, ours device.Buffer) error{
		"free":  func(_ *cuda.Device, ours device.Buffer) error { return ours.Free() },
		"close": func(b *cuda.Device, _ device.Buffer) error { return b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, fake := pair(t)
			before := fake.Live()
			theirs := filled(t, a, pattern(1000))
			ours, err := b.Access(theirs)
			must(t, err)
			if err := a.Close(); err == nil || !strings.Contains(err.Error(), "device cuda:0: close: the GPU cuda:1 uses memory") {
				t.Errorf("Close of a GPU whose memory another one accesses: %v, want an error that names it", err)
			}
			if got := contents(t, b, ours); !bytes.Equal(got, pattern(1000)) {
				t.Error("the memory has changed after Close has failed")
			}
			if got := contents(t, a, theirs); !bytes.Equal(got, pattern(1000)) {
				t.Error("the device does not work after Close has failed")
			}
			must(t, end(b, ours))
			must(t, a.Close())
			if name == "free" {
				must(t, b.Close())
			}
			if n := fake.Live(); n >= before {
				t.Errorf("%d things of the driver remain, and %d before", n, before)
			}
		})
	}
}

// TestCloseWaitsForOtherGPUs: Close waits for copies and other work of another GPU with memory of this one.
func TestCloseWaitsForOtherGPUs(t *testing.T) {
	for name, copied := range map[string]func(b *cuda.Device, s device.Stream, dst, theirs device.Buffer) error{
		"CopyPeer": func(_ *cuda.Device, s device.Stream, dst, theirs device.Buffer) error {
			return cuda.CopyPeer(s, device.Whole(dst), device.Whole(theirs))
		},
		"Access": func(b *cuda.Device, s device.Stream, dst, theirs device.Buffer) error {
			ours, err := b.Access(theirs)
			if err != nil {
				return err
			}
			return errors.Join(s.Copy(device.Whole(dst), device.Whole(ours)), ours.Free())
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _ := pair(t)
			theirs := filled(t, a, pattern(1000))
			dst := filled(t, b, make([]byte, 1000))
			s, err := b.NewStream()
			must(t, err)
			release := b.Hold()
			must(t, copied(b, s, dst, theirs))
			closed := make(chan error, 1)
			go func() { closed <- a.Close() }()
			for { // Close has begun.
				if _, err := a.Alloc(t.Context(), 1); errors.Is(err, device.ErrClosed) {
					break
				}
			}
			for range 1000 {
				runtime.Gosched()
			}
			if len(closed) != 0 {
				t.Error("Close does not wait for the copy of another GPU")
			}
			release()
			must(t, <-closed)
			must(t, s.Wait(t.Context()))
			if got := contents(t, b, dst); !bytes.Equal(got, pattern(1000)) {
				t.Error("the copy has other bytes than the memory of the closed GPU")
			}
			must(t, b.Close())
		})
	}
}

// TestCloseReturnsAll: streams that are open and memory of other processes end with the device, though the context
// remains for another one.
func TestCloseReturnsAll(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fake := cudafake.New(t)
		rest, err := cuda.Open(0, cuda.Config{Library: fake.Path})
		must(t, err)
		before := fake.Live()
		d, err := cuda.Open(0, cuda.Config{Library: fake.Path})
		must(t, err)
		var shared cuda.Shared
		must(t, json.Unmarshal([]byte(os.Getenv("SHARED")), &shared))
		b, err := d.Import(shared)
		must(t, err)
		for range 3 {
			_, err := d.NewStream()
			must(t, err)
		}
		if got := contents(t, d, b); !bytes.Equal(got, pattern(500)) {
			t.Error("memory of the other process has other bytes")
		}
		must(t, d.Close())
		if n := fake.Live(); n != before {
			t.Errorf("%d things of the driver remain", n-before)
		}
		must(t, rest.Close())
		return
	}
	d, _ := open(t, 0, cuda.Config{})
	shared, err := cuda.Share(filled(t, d, pattern(500)))
	must(t, err)
	text, err := json.Marshal(shared)
	must(t, err)
	inChild(t, "SHARED="+string(text))
}

// TestCloseDuringFirstCopies: Close while the first copies of several goroutines begin ends them with device.ErrClosed.
func TestCloseDuringFirstCopies(t *testing.T) {
	fake := cudafake.New(t)
	for range 20 {
		d, err := cuda.Open(0, cuda.Config{Library: fake.Path})
		must(t, err)
		b, err := d.Alloc(t.Context(), 1000)
		must(t, err)
		var copies sync.WaitGroup
		for range 4 {
			copies.Go(func() {
				for {
					if err := d.CopyIn(t.Context(), device.Whole(b), pattern(1000)); err != nil {
						if !errors.Is(err, device.ErrClosed) {
							t.Errorf("copy during Close: %v, want ErrClosed", err)
						}
						return
					}
				}
			})
		}
		runtime.Gosched()
		must(t, d.Close())
		copies.Wait()
	}
}

// TestChunkAfterClose: a copy that needs a further chunk of staging memory after Close ends with device.ErrClosed.
func TestChunkAfterClose(t *testing.T) {
	d, err := cuda.Open(0, cuda.Config{Library: cudafake.New(t).Path})
	must(t, err)
	must(t, d.Chunk(t.Context()))
	must(t, d.Close())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.Chunk(ctx); !errors.Is(err, device.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}
