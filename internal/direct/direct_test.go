//race:none it starts no goroutine

package direct

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

// A gpu is a device with buffers in memory of the host, which network cards may access.
type gpu struct {
	device.Device
	refuses error
	allocs  int
}

type buffer struct {
	on     *gpu
	memory []byte
	held   int
	freed  bool
	ends   []func()
}

func (d *gpu) Name() string { return "gpu:0" }

func (d *gpu) Alloc(_ context.Context, n int) (device.Buffer, error) {
	d.allocs++
	return &buffer{on: d, memory: make([]byte, n)}, nil
}

func (d *gpu) FlushWrites(context.Context) error { return nil }

func (d *gpu) Direct(b device.Buffer) (*device.DirectMemory, error) {
	own := b.(*buffer)
	return &device.DirectMemory{
		Address: uintptr(unsafe.Pointer(&own.memory[0])), Bytes: len(own.memory), AtFree: func(f func()) { own.ends = append(own.ends, f) },
		Hold: func() (func(), error) {
			if own.freed {
				return nil, device.ErrFreed
			}
			own.held++
			return func() { own.held--; own.end() }, nil
		},
	}, d.refuses
}

func (b *buffer) Device() device.Device { return b.on }
func (b *buffer) Len() int              { return len(b.memory) }

func (b *buffer) Free() error {
	b.freed = true
	b.end()
	return nil
}

func (b *buffer) end() {
	if b.freed && b.held == 0 {
		for _, f := range b.ends {
			f()
		}
		b.ends = nil
	}
}

// A card registers memory.
type card struct {
	refuses          error
	opened, standing int
}

func (c *card) Expose(m transport.DeviceMemory) (transport.Exposure, error) {
	if c.refuses != nil {
		return transport.Exposure{}, c.refuses
	}
	c.opened++
	c.standing++
	p := *(*unsafe.Pointer)(unsafe.Pointer(&m.Address))
	return transport.Exposure{Memory: unsafe.Slice((*byte)(p), m.Bytes), Method: "dma-buf", Close: func() error { c.standing--; return nil }}, nil
}

// TestHold: a buffer is registered once, until it is freed and not held.
func TestHold(t *testing.T) {
	d, c, r := new(gpu), new(card), &Registry{Log: slog.New(slog.DiscardHandler)}
	b, err := d.Alloc(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Hold(c, b)
	if err != nil || first.Method != "dma-buf" || &first.Bytes[0] != &b.(*buffer).memory[0] || len(first.Bytes) != 100 {
		t.Fatalf("Hold: %+v, %v", first, err)
	}
	second, err := r.Hold(c, b)
	if err != nil || c.opened != 1 {
		t.Errorf("second Hold: %d registrations (%v), want one", c.opened, err)
	}
	first.Release()
	_ = b.Free()
	if c.standing != 1 {
		t.Error("the registration has ended while the memory is held")
	}
	second.Release()
	if c.standing != 0 || r.Registered() != 0 {
		t.Errorf("%d registrations stand and %d are known after Free, want none", c.standing, r.Registered())
	}
}

// TestRefusal: a refusal of the device or the network card is logged once for each device.
func TestRefusal(t *testing.T) {
	for _, test := range []struct {
		d gpu
		c card
	}{{d: gpu{refuses: errors.New("no GPUDirect")}}, {c: card{refuses: errors.New("no GPUDirect")}}} {
		log := new(testlog.Buffer)
		r := &Registry{Log: slog.New(slog.NewTextHandler(log, nil))}
		for range 3 {
			b, _ := test.d.Alloc(t.Context(), 100)
			if m, err := r.Hold(&test.c, b); err == nil {
				t.Fatalf("Hold: %+v, want an error", m)
			}
			if held := b.(*buffer).held; held != 0 {
				t.Errorf("the memory is held %d times", held)
			}
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no GPUDirect") || !strings.Contains(text, "gpu:0") {
			t.Errorf("the log is %q, want one line with the device and the reason", text)
		}
	}
}

// TestWork: memory of operations is used again, and replaced when a longer one is needed. Close frees it.
func TestWork(t *testing.T) {
	d, c, r := new(gpu), new(card), &Registry{Log: slog.New(slog.DiscardHandler)}
	use := func(n int) {
		t.Helper()
		b, m, err := r.Work(t.Context(), c, d, n)
		if err != nil || len(m.Bytes) != n {
			t.Fatalf("%d bytes: %d, %v", n, len(m.Bytes), err)
		}
		m.Release()
		r.Return(b)
	}
	for _, step := range []struct{ bytes, allocs int }{{100, 1}, {50, 1}, {200, 2}, {200, 2}} {
		if use(step.bytes); d.allocs != step.allocs || c.standing != 1 {
			t.Errorf("after %d bytes: %d allocations and %d registrations, want %d and one", step.bytes, d.allocs, c.standing, step.allocs)
		}
	}
	one, m1, _ := r.Work(t.Context(), c, d, 10)
	two, m2, _ := r.Work(t.Context(), c, d, 10)
	m1.Release()
	r.Return(one)
	m2.Release()
	r.Return(two)
	if c.standing != 1 {
		t.Errorf("%d registrations stand between operations, want one", c.standing)
	}
	r.Close()
	use(10)
	if c.standing != 0 {
		t.Errorf("%d registrations stand after Close", c.standing)
	}
}
