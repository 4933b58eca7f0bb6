package kernel

import (
	"math"
	"sync"
)

// The two 8-bit formats are those of OFP8 ("OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, 2023). E4M3 has no
// infinities, one NaN and the largest number 448. E5M2 is the upper half of a float16, and has the largest number 57344.
//
// Rounding saturates, as __NV_SATFINITE of NVIDIA's cuda_fp8.h and .satfinite of PTX do: numbers beyond the largest one, and
// infinities, become the largest one. Of a scaled gradient, one number that is too large is then clipped, and does not make
// the sum NaN. Sums and products are computed in float32 and rounded once; see [loopHalves].

// nan8 is the NaN of results.
const nan8 = 0x7f

// F8ToF32 returns the value of an element of type Float8E4M3 or Float8E5M2. A NaN keeps its sign.
func F8ToF32(t Type, b uint8) float32 {
	h := uint16(b) << 8
	if t == Float8E5M2 || b&0x7f == nan8 {
		return F16ToF32(h)
	}
	return F16ToF32(h&0x8000|h&0x7fff>>1) * (1 << 8) // The biases of the exponents are 15 and 7.
}

// F32ToF8 rounds f to the nearest element of type Float8E4M3 or Float8E5M2, ties to even. It saturates, and a NaN becomes nan8.
func F32ToF8(t Type, f float32) uint8 { return roundF8(t, math.Float32bits(f)) }

// roundF8 is F32ToF8 on bits. As in finiteF16, it adds half a unit minus 1, or half a unit if the last bit is set, or a number
// with the unit of subnormals.
func roundF8(t Type, v uint32) uint8 {
	fraction, bias, largest := 3, 7, math.Float32bits(448)
	if t == Float8E5M2 {
		fraction, bias, largest = 2, 15, math.Float32bits(57344)
	}
	sign, b := uint8(v>>24)&0x80, min(v&^signMask32, largest)
	if v&^signMask32 > inf32 {
		return nan8
	}
	if b < uint32(128-bias)<<23 {
		unit := uint32(151-bias-fraction) << 23
		return sign | uint8(math.Float32bits(math.Float32frombits(b)+math.Float32frombits(unit))-unit)
	}
	cut := 23 - fraction
	return sign | uint8((b+1<<(cut-1)-1+b>>cut&1)>>cut-uint32(127-bias)<<fraction)
}

// narrowValue returns the value of an element of 16 or 8 bits.
func narrowValue(t Type, bits uint16) float32 {
	switch t {
	case Float16:
		return F16ToF32(bits)
	case BFloat16:
		return BF16ToF32(bits)
	}
	return F8ToF32(t, uint8(bits))
}

// narrowBits rounds f to an element of 16 or 8 bits, once. A NaN becomes the positive quiet one without payload.
func narrowBits(t Type, f float64) uint16 {
	if f != f {
		f = math.NaN()
	}
	switch t {
	case Float16:
		return F64ToF16(f)
	case BFloat16:
		return F64ToBF16(f)
	}
	return uint16(roundF8(t, toOdd(f)))
}

// eachNarrow replaces the elements of d by f of their values, rounded once.
func eachNarrow[T uint8 | uint16](t Type, d []T, f func(x float64) float64) {
	for i, v := range d {
		d[i] = T(narrowBits(t, f(float64(narrowValue(t, uint16(v))))))
	}
}

// eachF8 is eachNarrow for 8-bit types. Of many elements it computes each result once.
func eachF8(t Type, d []uint8, f func(x float64) float64) {
	var results [1 << 8]uint8
	if len(d) <= len(results) {
		eachNarrow(t, d, f)
		return
	}
	for i := range results {
		results[i] = uint8(i)
	}
	eachNarrow(t, results[:], f)
	for i, v := range d {
		d[i] = results[v]
	}
}

// ofPairs returns the [Reducer] of an 8-bit type. The first use builds a table of the results of all pairs, which is several
// times as fast as conversions.
func ofPairs(t Type, op Op) func(dst, a, b []byte) {
	table := sync.OnceValue(func() *[1 << 16]uint8 {
		results := new([1 << 16]uint8)
		for i := range results {
			results[i] = reduceF8(t, op, uint8(i>>8), uint8(i))
		}
		return results
	})
	return func(dst, a, b []byte) {
		check(dst, a, b, 1)
		results := table()
		for i, x := range a {
			dst[i] = results[uint16(x)<<8|uint16(b[i])]
		}
	}
}

// reduceF8 returns a op b.
func reduceF8(t Type, op Op, a, b uint8) uint8 {
	x, y := F8ToF32(t, a), F8ToF32(t, b)
	switch {
	case op == Sum:
		return F32ToF8(t, x+y)
	case op == Prod:
		return F32ToF8(t, x*y)
	case x != x || y != y:
		return nan8
	case Compare(x, y, op == Max) <= 0: // Min and Max do not round.
		return a
	}
	return b
}
