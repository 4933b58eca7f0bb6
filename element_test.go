package nexar

import (
	"math"
	"testing"
)

// A named type has another type as its underlying one.
type named float32

// TestElementAllocations: the type lookup does not allocate.
func TestElementAllocations(t *testing.T) {
	x, y, z := make([]float32, 2), make([]named, 2), make([]complex128, 2)
	if n := testing.AllocsPerRun(100, func() { sink = elementsOf(x).N + elementsOf(y).N + elementsOf(z).N }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

var sink int

// BenchmarkElement measures the type lookup of a call.
func BenchmarkElement(b *testing.B) {
	b.Run("float32", func(b *testing.B) { benchElement[float32](b) })
	b.Run("complex128", func(b *testing.B) { benchElement[complex128](b) })
	b.Run("named float32", func(b *testing.B) { benchElement[named](b) })
}

func benchElement[T Number](b *testing.B) {
	x := make([]T, 2)
	for b.Loop() {
		sink = numbersOf(x).N
	}
}

// TestFloat8: numbers of 8 bits have the values and the rounding of their formats.
func TestFloat8(t *testing.T) {
	for _, test := range []struct {
		f          float32
		e4m3, e5m2 string
	}{
		{1, "1", "1"}, {-0.3, "-0.3125", "-0.3125"}, {448, "448", "448"}, {1000, "448", "1024"}, {float32(math.Inf(-1)), "-448", "-57344"},
		{float32(math.NaN()), "NaN", "NaN"}, {0x1p-9, "0.001953125", "0.001953125"}, {0x1p-16, "0", "1.5258789e-05"},
	} {
		if a, b := ToFloat8E4M3(test.f).String(), ToFloat8E5M2(test.f).String(); a != test.e4m3 || b != test.e5m2 {
			t.Errorf("%v became %v and %v, want %v and %v", test.f, a, b, test.e4m3, test.e5m2)
		}
	}
}

// TestView: vectors of types with as many bits share their memory, and those of other types panic.
func TestView(t *testing.T) {
	bits := []int8{0x38, -0x48}
	if v := View[Float8E4M3](bits); len(v) != 2 || v[0].Float32() != 1 || v[1].Float32() != -1 {
		t.Errorf("View has the values %v, want 1 and -1", v)
	}
	View[Float8E4M3](bits)[0] = ToFloat8E4M3(2)
	if bits[0] != 0x40 {
		t.Errorf("a write to a view left %#x", bits[0])
	}
	defer func() {
		want := "nexar: View of []int8 as []nexar.BFloat16: the elements have 8 and 16 bits, and must have as many"
		if got := recover(); got != want {
			t.Errorf("View of 8 bits as 16 panics with %v, want %s", got, want)
		}
	}()
	View[BFloat16](bits)
}
