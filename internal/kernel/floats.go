package kernel

import "math"

func loopFloats[T float](op Op, d, x, y []T) {
	switch op {
	case Sum:
		addFloats(d, x, y)
	case Prod:
		mulFloats(d, x, y)
	case Min:
		minFloats(d, x, y)
	case Max:
		maxFloats(d, x, y)
	default:
		panic("kernel: no such operation on floats")
	}
}

// The loops below differ in one operator each; a function call per element would take
// five times as long.
//
// The NaN that an operation on NaNs returns depends on the processor and, on some, on the
// order of the operands, which the compiler may exchange. So each loop replaces NaNs by a
// canonical one. A check of every element would halve the speed. The sum of eight elements
// is NaN if one of them is, and otherwise only if +Inf meets -Inf, where a check
// changes nothing.

// unroll is the number of elements that a loop handles at once.
const unroll = 8

func addFloats[T float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	i := 0
	for ; i <= len(d)-unroll; i += unroll {
		d, x, y := (*[unroll]T)(d[i:i+unroll]), (*[unroll]T)(x[i:i+unroll]), (*[unroll]T)(y[i:i+unroll])
		r0, r1, r2, r3 := x[0]+y[0], x[1]+y[1], x[2]+y[2], x[3]+y[3]
		r4, r5, r6, r7 := x[4]+y[4], x[5]+y[5], x[6]+y[6], x[7]+y[7]
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r0, r1, r2, r3, r4, r5, r6, r7
		if t := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); t != t {
			replaceNaNs(d[:])
		}
	}
	for j := i; j < len(d); j++ {
		d[j] = x[j] + y[j]
	}
	replaceNaNs(d[i:])
}

func mulFloats[T float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	i := 0
	for ; i <= len(d)-unroll; i += unroll {
		d, x, y := (*[unroll]T)(d[i:i+unroll]), (*[unroll]T)(x[i:i+unroll]), (*[unroll]T)(y[i:i+unroll])
		// The conversions keep the compiler from fusing a product with the next addition.
		r0, r1, r2, r3 := T(x[0]*y[0]), T(x[1]*y[1]), T(x[2]*y[2]), T(x[3]*y[3])
		r4, r5, r6, r7 := T(x[4]*y[4]), T(x[5]*y[5]), T(x[6]*y[6]), T(x[7]*y[7])
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r0, r1, r2, r3, r4, r5, r6, r7
		if t := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); t != t {
			replaceNaNs(d[:])
		}
	}
	for j := i; j < len(d); j++ {
		d[j] = x[j] * y[j]
	}
	replaceNaNs(d[i:])
}

func minFloats[T float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	i := 0
	for ; i <= len(d)-unroll; i += unroll {
		d, x, y := (*[unroll]T)(d[i:i+unroll]), (*[unroll]T)(x[i:i+unroll]), (*[unroll]T)(y[i:i+unroll])
		r0, r1, r2, r3 := min(x[0], y[0]), min(x[1], y[1]), min(x[2], y[2]), min(x[3], y[3])
		r4, r5, r6, r7 := min(x[4], y[4]), min(x[5], y[5]), min(x[6], y[6]), min(x[7], y[7])
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r0, r1, r2, r3, r4, r5, r6, r7
		if t := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); t != t {
			replaceNaNs(d[:])
		}
	}
	for j := i; j < len(d); j++ {
		d[j] = min(x[j], y[j])
	}
	replaceNaNs(d[i:])
}

func maxFloats[T float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	i := 0
	for ; i <= len(d)-unroll; i += unroll {
		d, x, y := (*[unroll]T)(d[i:i+unroll]), (*[unroll]T)(x[i:i+unroll]), (*[unroll]T)(y[i:i+unroll])
		r0, r1, r2, r3 := max(x[0], y[0]), max(x[1], y[1]), max(x[2], y[2]), max(x[3], y[3])
		r4, r5, r6, r7 := max(x[4], y[4]), max(x[5], y[5]), max(x[6], y[6]), max(x[7], y[7])
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r0, r1, r2, r3, r4, r5, r6, r7
		if t := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); t != t {
			replaceNaNs(d[:])
		}
	}
	for j := i; j < len(d); j++ {
		d[j] = max(x[j], y[j])
	}
	replaceNaNs(d[i:])
}

// replaceNaNs replaces every NaN by the positive quiet one without payload.
func replaceNaNs[T float](d []T) {
	for i, v := range d {
		if v != v {
			// The literal is a float64. The conversion to float32 keeps sign and quiet bit on
			// every processor.
			d[i] = T(math.Float64frombits(0x7ff8000000000000))
		}
	}
}
