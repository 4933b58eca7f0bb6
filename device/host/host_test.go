//race:none tests of other packages use it with goroutines

package host_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/internal/kernel"
)

func TestConformance(t *testing.T) {
	devicetest.Run(t, func(testing.TB) device.Device { return host.Device{} })
}

// TestOf: a buffer has the memory of the slice, without the capacity beyond it.
func TestOf(t *testing.T) {
	all := []byte("0123456789")
	slice := all[2:6]
	b := host.Of(slice)
	if b.Len() != 4 || b.Device() != device.Device(host.Device{}) {
		t.Errorf("buffer of %d bytes on %v, want 4 on the host", b.Len(), b.Device())
	}
	mem, err := host.Device{}.Map(b)
	if err != nil || len(mem) != 4 || cap(mem) != 4 || &mem[0] != &slice[0] {
		t.Errorf("Map: length %d, capacity %d, %v; want the slice", len(mem), cap(mem), err)
	}
	if err := (host.Device{}).CopyIn(t.Context(), device.Whole(b), []byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if string(all) != "01abcd6789" {
		t.Errorf("memory around the slice after CopyIn: %q", all)
	}
	all[3] = 'x'
	got := make([]byte, 4)
	if err := (host.Device{}).CopyOut(t.Context(), got, device.Whole(b)); err != nil || string(got) != "axcd" {
		t.Errorf("CopyOut: %q, %v", got, err)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if string(all) != "01axcd6789" {
		t.Errorf("memory around the slice after Free: %q", all)
	}
	if n := host.Of(nil).Len(); n != 0 {
		t.Errorf("buffer of nil has %d bytes, want 0", n)
	}
}

// TestOfTheSameSlice: regions of two buffers of the same memory can overlap.
func TestOfTheSameSlice(t *testing.T) {
	mem := make([]byte, 64)
	s, err := host.Device{}.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	region := func(from, offset, bytes, rows, stride int) device.Region {
		return device.Region{Buffer: host.Of(mem[from:]), Offset: offset, Bytes: bytes, Rows: rows, Stride: stride}
	}
	for _, test := range []struct {
		a, b    device.Region
		overlap bool
	}{
		{region(0, 0, 16, 0, 0), region(16, 0, 16, 0, 0), false},
		{region(0, 0, 16, 0, 0), region(8, 0, 16, 0, 0), true},
		{region(8, 0, 16, 0, 0), region(0, 20, 16, 0, 0), true},
		{region(8, 0, 16, 0, 0), region(0, 24, 16, 0, 0), false},
		{region(0, 0, 4, 4, 8), region(4, 0, 4, 4, 8), false},
		{region(0, 0, 4, 4, 8), region(4, 20, 4, 4, 8), true},
		{region(0, 0, 4, 4, 8), region(0, 0, 4, 4, 8), true},
	} {
		for _, pair := range [][2]device.Region{{test.a, test.b}, {test.b, test.a}} {
			for what, err := range map[string]error{
				"Copy":   s.Copy(pair[0], pair[1]),
				"Reduce": s.(device.Reducer).Reduce(pair[0], pair[1], device.Float32, device.Sum),
			} {
				if errors.Is(err, device.ErrOverlap) != test.overlap || !test.overlap && err != nil {
					t.Errorf("%s of %+v: %v, want overlap %v", what, pair, err, test.overlap)
				}
			}
		}
	}
}

// TestForeignTypes: buffers and stagings of other packages are errors, even if their Device is
// the host.
func TestForeignTypes(t *testing.T) {
	d := host.Device{}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Stage(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	own := device.Whole(host.Of(make([]byte, 10)))
	foreign := own
	foreign.Buffer = wrappedBuffer{own.Buffer}
	for what, err := range map[string]error{
		"CopyIn":    d.CopyIn(t.Context(), foreign, make([]byte, 10)),
		"Copy":      s.Copy(own, foreign),
		"StageSend": s.StageSend(wrappedStaging{st}, 0, own),
	} {
		if e, ok := errors.AsType[*device.ForeignError](err); !ok || !strings.Contains(e.Owner, "host_test.wrapped") {
			t.Errorf("%s: %v, want a ForeignError that names the type", what, err)
		}
	}
}

type wrappedBuffer struct{ device.Buffer }

type wrappedStaging struct{ device.Staging }

// TestHugeAllocations: lengths that a process cannot address are errors, not panics.
func TestHugeAllocations(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MaxInt - device.Align, math.MaxInt - device.Align + 1} {
		if math.MaxInt == math.MaxInt32 && n < math.MaxInt {
			continue // on 32-bit machines make ends the process
		}
		_, err := host.Device{}.Alloc(t.Context(), n)
		want := device.MemoryError{Device: "host", What: "buffer", Requested: n, Free: -1, Total: -1}
		if e, ok := errors.AsType[*device.MemoryError](err); !ok || *e != want {
			t.Errorf("%d bytes: %v, want %v", n, err, &want)
		}
	}
}

func TestAllocIsZero(t *testing.T) {
	b, err := host.Device{}.Alloc(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := host.Device{}.Map(b)
	if err != nil || bytes.Count(mem, []byte{0}) != 1000 {
		t.Errorf("%v, %v, want zeros", mem, err)
	}
}

// TestKernelNumbers: types and operations have the same values in packages device and kernel.
func TestKernelNumbers(t *testing.T) {
	for n := range 256 {
		typ := device.Type(n)
		if k := kernel.Type(n); typ.Size() != k.Size() || typ.String() != k.String() {
			t.Errorf("type %d is %v of %d bytes; in package kernel %v of %d", n, typ, typ.Size(), k, k.Size())
		}
		for m := range 256 {
			op := device.Op(m)
			if k := kernel.Op(m); k != kernel.Avg && op.String() != k.String() {
				t.Errorf("op %d is %v; in package kernel %v", m, op, k)
			}
			if has := kernel.Reducer(kernel.Type(n), kernel.Op(m)) != nil; op.Defined(typ) != (has && kernel.Op(m) != kernel.Avg) {
				t.Errorf("%v of %v: defined %v; in package kernel %v", op, typ, op.Defined(typ), has)
			}
		}
	}
}

func TestAllocations(t *testing.T) {
	d := host.Device{}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	st, err := d.Stage(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	a, b := device.Whole(host.Of(make([]byte, 4096))), device.Whole(host.Of(make([]byte, 4096)))
	list, ctx, mem := []device.Region{a}, context.Background(), make([]byte, 4096)
	reducer := s.(device.Reducer)
	for what, f := range map[string]func() error{
		"CopyIn":      func() error { return d.CopyIn(ctx, a, mem) },
		"CopyOut":     func() error { return d.CopyOut(ctx, mem, a) },
		"StageSend":   func() error { return s.StageSend(st, 0, list...) },
		"ReceiveInto": func() error { return s.ReceiveInto(st, 0, list...) },
		"Copy":        func() error { return s.Copy(a, b) },
		"Reduce":      func() error { return reducer.Reduce(a, b, device.Float32, device.Sum) },
		"Wait":        func() error { return s.Wait(ctx) },
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}
