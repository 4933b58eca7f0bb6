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
	if int(t) >= len(dividers) {
		return nil
	}
	if f := vectorDivider(t); f != nil {
		return f
	}
	return dividers[t]
}

var dividers = [BFloat16 + 1]func(dst []byte, n int){
	Int8: divideInts[int8], Int16: divideInts[int16], Int32: divideInts[int32], Int64: divideInts[int64],
	Uint8: divideInts[uint8], Uint16: divideInts[uint16], Uint32: divideInts[uint32], Uint64: divideInts[uint64],
	Float32: divideFloats[float32], Float64: divideFloats[float64],
	Float16: divideF16, BFloat16: divideBF16,
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

func divideInts[T integer](dst []byte, n int) {
	checkDivision(dst, n, sizeOf[T]())
	if direct(dst, dst, dst, sizeOf[T]()) {
		quotients(view[T](dst), n)
		return
	}
	var s stage
	for len(dst) > 0 {
		x, _ := s.load(dst, nil)
		quotients(view[T](x), n)
		dst = dst[copy(dst, x):]
	}
}

// quotients divides 64-bit integers, since n need not fit in a T. A signed quotient cannot
// overflow, as n is positive.
func quotients[T integer](d []T, n int) {
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

func divideFloats[T float](dst []byte, n int) {
	checkDivision(dst, n, sizeOf[T]())
	if direct(dst, dst, dst, sizeOf[T]()) {
		ratios(view[T](dst), n)
		return
	}
	var s stage
	for len(dst) > 0 {
		x, _ := s.load(dst, nil)
		ratios(view[T](x), n)
		dst = dst[copy(dst, x):]
	}
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

func divideF16(dst []byte, n int)  { divideHalves(Float16, dst, n) }
func divideBF16(dst []byte, n int) { divideHalves(BFloat16, dst, n) }

// divideHalves stages at every alignment. The extra copy does not matter: a collective takes an
// average once, and a sum for every peer.
func divideHalves(t Type, dst []byte, n int) {
	checkDivision(dst, n, 2)
	var s stage
	for len(dst) > 0 {
		x, _ := s.load(dst, nil)
		h := view[uint16](x)
		switch {
		case n > float32DivisorMax:
			wideQuotients(t, h, n)
		default:
			quotientsOfHalves(t, h, n)
		}
		dst = dst[copy(dst, x):]
	}
}

// float32DivisorMax is the largest n for which the quotient of a float16 can be rounded to
// float32 first. A float16, of 11 bits, divided by n is a tie between two others, of 12 bits,
// or differs from it by more than 1 in n * 2^12, and rounding to float32 errs by less than 1 in
// 2^24. BFloat16 is shorter and has more room.
const float32DivisorMax = 1 << 12

func quotientsOfHalves(t Type, h []uint16, n int) {
	var buf [stageBytes / 2]float32
	f := buf[:len(h)]
	if t == Float16 {
		widenFloat16(f, h)
		ratios(f, n)
		roundFloat16(h, f)
	} else {
		widenBFloat16(f, h)
		ratios(f, n)
		roundBFloat16(h, f)
	}
}

// wideQuotients is quotientsOfHalves for any n.
func wideQuotients(t Type, h []uint16, n int) {
	var f [1]float64
	for i, v := range h {
		if t == Float16 {
			f[0] = float64(F16ToF32(v))
			ratios(f[:], n)
			h[i] = F64ToF16(f[0])
		} else {
			f[0] = float64(BF16ToF32(v))
			ratios(f[:], n)
			h[i] = F64ToBF16(f[0])
		}
	}
}
