package nexar

import (
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
