package kernel

import (
	"math"
	"slices"
	"testing"
)

// TestFloats: elements of all floating-point types are rounded to float32 and back.
func TestFloats(t *testing.T) {
	third := float32(1) / 3
	floats := []float32{1, -2.5, third, float32(math.Inf(1)), 0, 65504, -third}
	halves := func(round func(float32) uint16) []byte {
		list := make([]uint16, len(floats))
		for i, f := range floats {
			list[i] = round(f)
		}
		return memory(list)
	}
	eighths := func(typ Type) (list []byte) {
		for _, f := range floats {
			list = append(list, F32ToF8(typ, f))
		}
		return list
	}
	wide := make([]float64, len(floats))
	for i, f := range floats {
		wide[i] = float64(f) * (1 + 1e-12)
	}
	exact := make([]float64, len(floats))
	for i, f := range floats {
		exact[i] = float64(f)
	}
	for _, test := range []struct {
		typ       Type
		src, want []byte
		value     func(i int) float32
	}{
		{Float32, memory(floats), memory(floats), func(i int) float32 { return floats[i] }},
		{Float64, memory(wide), memory(exact), func(i int) float32 { return floats[i] }},
		{Float16, halves(F32ToF16), halves(F32ToF16), func(i int) float32 { return F16ToF32(F32ToF16(floats[i])) }},
		{Float8E4M3, eighths(Float8E4M3), eighths(Float8E4M3), func(i int) float32 { return F8ToF32(Float8E4M3, F32ToF8(Float8E4M3, floats[i])) }},
		{Float8E5M2, eighths(Float8E5M2), eighths(Float8E5M2), func(i int) float32 { return F8ToF32(Float8E5M2, F32ToF8(Float8E5M2, floats[i])) }},
		{BFloat16, halves(F32ToBF16), halves(F32ToBF16), func(i int) float32 { return BF16ToF32(F32ToBF16(floats[i])) }},
	} {
		got := make([]float32, len(floats))
		ToFloats(got, test.typ, test.src)
		for i := range got {
			if got[i] != test.value(i) {
				t.Errorf("%v: element %d is %v, want %v", test.typ, i, got[i], test.value(i))
			}
		}
		back := make([]byte, len(test.want))
		FromFloats(back, test.typ, got)
		if !slices.Equal(back, test.want) {
			t.Errorf("%v: %v became %v, want %v", test.typ, got, back, test.want)
		}
	}
}
