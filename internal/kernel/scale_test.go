package kernel

import (
	"math"
	"testing"
)

// TestScale: products are rounded once, the factor 0 clears NaNs, and the NaN of a product is the
// canonical one.
func TestScale(t *testing.T) {
	for _, typ := range []Type{Float32, Float64, Float16, BFloat16} {
		values := []float32{1.5, -3, 65504, float32(math.Inf(1)), float32(math.NaN())}
		b := make([]byte, len(values)*typ.Size())
		got := make([]float32, len(values))
		FromFloats(b, typ, values)
		Scale(typ, b, 0.5)
		ToFloats(got, typ, b)
		for i, want := range []float32{0.75, -1.5, 32752, float32(math.Inf(1))} {
			if typ == BFloat16 && i == 2 {
				want = 32768
			}
			if got[i] != want {
				t.Errorf("%v: %v · 0.5 = %v, want %v", typ, values[i], got[i], want)
			}
		}
		if got[4] == got[4] {
			t.Errorf("%v: NaN · 0.5 = %v", typ, got[4])
		}
		Scale(typ, b, 0)
		for i, x := range b {
			if x != 0 {
				t.Fatalf("%v: byte %d is %#x after the factor 0", typ, i, x)
			}
		}
	}
	third := []float64{1, 3}
	b := make([]byte, 16)
	copy(view[float64](b), third)
	Scale(Float64, b, 1.0/3)
	if got := view[float64](b); got[0] != 1.0/3 || got[1] != 3*(1.0/3) {
		t.Errorf("got %v", got)
	}
}
