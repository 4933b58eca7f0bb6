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

// TestScaleFloat8: products of 8-bit numbers are rounded once and saturate.
func TestScaleFloat8(t *testing.T) {
	for _, typ := range []Type{Float8E4M3, Float8E5M2} {
		b := []byte{F32ToF8(typ, 1.5), F32ToF8(typ, -3), F32ToF8(typ, 448), 0xff, F32ToF8(typ, 1)}
		Scale(typ, b, 1.0/3)
		third := float32(0.34375) // the neighbors are 0.3125 and 0.375
		largest := float32(144)   // 448/3 is 149.3; the neighbors are 144 and 160
		if typ == Float8E5M2 {
			third, largest = 0.3125, 160 // the neighbors are 0.3125 and 0.375; 448 is 448, and those of 149.3 are 128 and 160
		}
		for i, want := range []float32{0.5, -1, largest, 0, third} {
			if got := F8ToF32(typ, b[i]); got != want && i != 3 {
				t.Errorf("%v: element %d is %v, want %v", typ, i, got, want)
			}
		}
		if b[3] != nan8 {
			t.Errorf("%v: NaN became %#02x", typ, b[3])
		}
		Scale(typ, b, 1e9)
		if got, want := F8ToF32(typ, b[0]), F8ToF32(typ, F32ToF8(typ, math.MaxFloat32)); got != want {
			t.Errorf("%v: 5e8 became %v, want %v", typ, got, want)
		}
		Scale(typ, b, 0)
		if string(b) != "\x00\x00\x00\x00\x00" {
			t.Errorf("%v: the factor 0 left % x", typ, b)
		}
	}
}
