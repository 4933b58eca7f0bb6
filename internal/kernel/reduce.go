package kernel

import (
	"sync"

	"github.com/nexar-go/nexar/device"
)

// Reducer returns the function that sets dst to a op b, element by element. It is nil if op is
// not defined for t: floats have no bit operations, and complex elements only sums, products
// and averages. The slices have the same length, a multiple of the size of t; dst may be a or
// b.
//
// Reducer selects between assembly and Go once, so that calls of the function do not.
func Reducer(t Type, op Op) func(dst, a, b []byte) {
	if part, ok := partOf(t); ok && (op == Sum || op == Avg) {
		return Reducer(part, Sum)
	}
	if t > Float8E5M2 || op > BitXor {
		return nil
	}
	if f := vectorReducer(t, op); f != nil {
		return f
	}
	return inGo().reducers[t][op]
}

// inGo returns the functions without assembly. They are made once, so that lookups do not allocate.
var inGo = sync.OnceValue(func() *functions {
	f := new(functions)
	for t := Int8; t <= Float8E5M2; t++ {
		for op := Sum; op <= BitXor; op++ {
			switch {
			case op == Avg:
				f.reducers[t][Avg] = f.reducers[t][Sum]
			case !device.Op(op).Defined(t):
			case t >= Float8E4M3:
				f.reducers[t][op] = ofPairs(t, op)
			default:
				f.reducers[t][op] = func(dst, a, b []byte) { reduce(t, op, dst, a, b) }
			}
		}
		f.dividers[t] = func(dst []byte, n int) { divide(t, dst, n) }
	}
	return f
})

// functions has those of [Reducer] and [Divider], or nil.
type functions struct {
	reducers [Float8E5M2 + 1][BitXor + 1]func(dst, a, b []byte)
	dividers [Float8E5M2 + 1]func(dst []byte, n int)
}

// reduce is a [Reducer]. It reduces whole words at a time where that is possible, also of smaller integers.
func reduce(t Type, op Op, dst, a, b []byte) {
	check(dst, a, b, t.Size())
	if n := len(dst) &^ (wordBytes - 1); n > 0 && t <= Uint32 {
		if inWords := wordOp(t, op); inWords != 0 {
			reduceAligned(Uint64, inWords, dst[:n], a[:n], b[:n])
			dst, a, b = dst[n:], a[n:], b[n:]
		}
	}
	reduceAligned(t, op, dst, a, b)
}

// reduceAligned reduces in place, or in a stage if the machine does not support the alignment.
func reduceAligned(t Type, op Op, dst, a, b []byte) {
	if direct(dst, a, b, t.Size()) {
		loop(t, op, dst, a, b)
	} else {
		reduceInStage(t, op, dst, a, b)
	}
}

func reduceInStage(t Type, op Op, dst, a, b []byte) {
	var s stage
	for len(dst) > 0 {
		x, y := s.load(a, b)
		loop(t, op, x, x, y)
		n := copy(dst, x)
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

// loop sets d to x op y, of aligned elements.
func loop(t Type, op Op, d, x, y []byte) {
	switch t {
	case Int8:
		loopInts[int8](op, d, x, y)
	case Int16:
		loopInts[int16](op, d, x, y)
	case Int32:
		loopInts[int32](op, d, x, y)
	case Int64:
		loopInts[int64](op, d, x, y)
	case Uint8:
		loopInts[uint8](op, d, x, y)
	case Uint16:
		loopInts[uint16](op, d, x, y)
	case Uint32:
		loopInts[uint32](op, d, x, y)
	case Uint64:
		loopInts[uint64](op, d, x, y)
	case Float32:
		loopFloats(op, view[float32](d), view[float32](x), view[float32](y))
	case Float64:
		loopFloats(op, view[float64](d), view[float64](x), view[float64](y))
	case Complex64:
		mulComplex(view[float32](d), view[float32](x), view[float32](y))
	case Complex128:
		mulComplex(view[float64](d), view[float64](x), view[float64](y))
	default:
		loopHalves(t, op, view[uint16](d), view[uint16](x), view[uint16](y))
	}
}

// check panics unless the slices can be operands of a reduction of elements of size bytes.
func check(dst, a, b []byte, size int) {
	if len(a) != len(dst) || len(b) != len(dst) {
		panic("kernel: operands of different lengths")
	}
	if len(dst)%size != 0 {
		panic("kernel: length is not a multiple of the element size")
	}
	if overlaps(dst, a) || overlaps(dst, b) {
		panic("kernel: operands overlap partially")
	}
}

// overlaps reports whether dst and src, of the same length, share some but not all bytes.
func overlaps(dst, src []byte) bool {
	p, q, n := address(dst), address(src), uintptr(len(dst))
	return p != q && (p-q < n || q-p < n)
}
