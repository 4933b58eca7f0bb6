package kernel

import "math/bits"

// Divider returns the function that divides a sum of n vectors by n, in place. It is nil if t
// is not a Type.
//
// Integers are truncated toward zero, like the operator of Go; a sum that has wrapped around
// stays wrong. Floats are divided by n and rounded to nearest even. The function panics unless
// the length of dst is a multiple of the size of t, and n is positive and at most 2^24, the
// limit up to which float32 represents every integer.
func Divider(t Type) func(dst []byte, n int) {
	if part, ok := partOf(t); ok {
		return Divider(part)
	}
	if t > Float8E5M2 {
		return nil
	}
	if f := vectorDivider(t); f != nil {
		return f
	}
	return inGo().dividers[t]
}

// checkDivision panics unless dst, of elements of size bytes, can be divided
// by n.
func checkDivision(dst []byte, n, size int) {
	check(dst, dst, dst, size)
	if n <= 0 || n > divisorMax {
		panic("kernel: average of an unsupported number of vectors")
	}
}

const divisorMax = 1 << 24

// divide is a [Divider].
func divide(t Type, dst []byte, n int) {
	checkDivision(dst, n, t.Size())
	if direct(dst, dst, dst, t.Size()) {
		quotients(t, dst, n)
		return
	}
	var s stage
	for len(dst) > 0 {
		x, _ := s.load(dst, nil)
		quotients(t, x, n)
		dst = dst[copy(dst, x):]
	}
}

// quotients divides aligned elements.
func quotients(t Type, d []byte, n int) {
	switch t {
	case Int8:
		quotientsOfInts(view[int8](d), n)
	case Int16:
		quotientsOfInts(view[int16](d), n)
	case Int32:
		quotientsOfInts(view[int32](d), n)
	case Int64:
		quotientsOfInts(view[int64](d), n)
	case Uint8:
		quotientsOfInts(view[uint8](d), n)
	case Uint16:
		quotientsOfInts(view[uint16](d), n)
	case Uint32:
		quotientsOfInts(view[uint32](d), n)
	case Uint64:
		quotientsOfInts(view[uint64](d), n)
	case Float32:
		ratios(view[float32](d), n)
	case Float64:
		ratios(view[float64](d), n)
	case Float8E4M3, Float8E5M2:
		eachF8(t, d, func(x float64) float64 { return x / float64(n) })
	default:
		quotientsOfHalves(t, view[uint16](d), n)
	}
}

// quotientsOfInts divides 64-bit integers, since n need not fit in a T. A signed quotient cannot
// overflow, as n is positive.
func quotientsOfInts[T integer](d []T, n int) {
	if n == 1 {
		return
	}
	by := reciprocal(n)
	switch {
	case sizeOf[T]() == 8 && ^T(0) > 0:
		for i, v := range d {
			d[i] = T(by.divide(uint64(v)))
		}
	case sizeOf[T]() == 8:
		for i, v := range d {
			u, sign := magnitude(int64(v))
			d[i] = T(by.divide(u) ^ sign - sign)
		}
	default:
		for i, v := range d {
			u, sign := magnitude(int64(v))
			d[i] = T(by.divide32(u) ^ sign - sign)
		}
	}
}

// magnitude returns the absolute value of v, and its sign as all zeros or all ones.
func magnitude(v int64) (u, sign uint64) {
	sign = uint64(v >> 63)
	return uint64(v) ^ sign - sign, sign
}

// A divisor multiplies instead of dividing, which is several times as fast (Granlund and
// Montgomery, "Division by invariant integers using multiplication", PLDI 1994).
type divisor struct{ n, inverse uint64 }

// reciprocal returns the divisor of n, which is at least 2.
func reciprocal(n int) divisor {
	inverse, _ := bits.Div64(1, 0, uint64(n)) // 2^64 / n, rounded down
	return divisor{uint64(n), inverse}
}

// divide returns x / n. The inverse is too small by less than 1, so the product is too small by
// less than x/2^64, and the quotient by at most 1. The correction has no branch, which would be
// mispredicted for every n-th x.
func (d divisor) divide(x uint64) uint64 {
	q, _ := bits.Mul64(x, d.inverse)
	_, less := bits.Sub64(x-q*d.n, d.n, 0)
	return q + 1 - less
}

// divide32 returns x / n for x of at most 32 bits. The rounded-up inverse is too large by at
// most 1, so the product is too large by at most x/2^64, which is less than 1/n, the minimum
// distance to the next quotient.
func (d divisor) divide32(x uint64) uint64 {
	q, _ := bits.Mul64(x, d.inverse+1)
	return q
}

// ratios multiplies by the reciprocal where it is exact: the result is the same, and faster.
func ratios[T float](d []T, n int) {
	if n&(n-1) == 0 {
		by := 1 / T(n)
		for i, v := range d {
			d[i] = v * by
		}
	} else {
		by := T(n)
		for i, v := range d {
			d[i] = v / by
		}
	}
	replaceNaNs(d)
}

// float32DivisorMax is the largest n for which the quotient of a float16 can be rounded to
// float32 first. A float16, of 11 bits, divided by n is a tie between two others, of 12 bits,
// or differs from it by more than 1 in n * 2^12, and rounding to float32 errs by less than 1 in
// 2^24. BFloat16 is shorter and has more room.
const float32DivisorMax = 1 << 12

func quotientsOfHalves(t Type, h []uint16, n int) {
	if n > float32DivisorMax {
		eachNarrow(t, h, func(x float64) float64 { return x / float64(n) })
		return
	}
	var buf [halfBlock]float32
	for len(h) > 0 {
		part := h[:min(len(h), halfBlock)]
		f := buf[:len(part)]
		if t == Float16 {
			widenFloat16(f, part)
			ratios(f, n)
			roundFloat16(part, f)
		} else {
			widenBFloat16(f, part)
			ratios(f, n)
			roundBFloat16(part, f)
		}
		h = h[len(part):]
	}
}
