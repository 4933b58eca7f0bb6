package devicetest

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/nexar-go/nexar/device"
)

// reduced returns a op b, computed element by element.
func reduced(t device.Type, op device.Op, a, b []byte) []byte {
	dst := make([]byte, len(a))
	switch t {
	case device.Int8:
		each(dst, a, b, integer[int8](op))
	case device.Int16:
		each(dst, a, b, integer[int16](op))
	case device.Int32:
		each(dst, a, b, integer[int32](op))
	case device.Int64:
		each(dst, a, b, integer[int64](op))
	case device.Uint8:
		each(dst, a, b, integer[uint8](op))
	case device.Uint16:
		each(dst, a, b, integer[uint16](op))
	case device.Uint32:
		each(dst, a, b, integer[uint32](op))
	case device.Uint64:
		each(dst, a, b, integer[uint64](op))
	case device.Float32:
		each(dst, a, b, float(op, math.Float32frombits, math.Float32bits, 0x7FC00000))
	case device.Float64:
		each(dst, a, b, float(op, math.Float64frombits, math.Float64bits, 0x7FF8000000000000))
	case device.Float16:
		each(dst, a, b, narrow[uint16](op, format{5, 10, 0x7C00, 0x7C00, 0x7E00}))
	case device.BFloat16:
		each(dst, a, b, narrow[uint16](op, format{8, 7, 0x7F80, 0x7F80, 0x7FC0}))
	case device.Float8E4M3:
		each(dst, a, b, narrow[uint8](op, format{4, 3, 0x7E, 0x7F, 0x7F}))
	case device.Float8E5M2:
		each(dst, a, b, narrow[uint8](op, format{5, 2, 0x7B, 0x7C, 0x7F}))
	case device.Complex64:
		each(dst, a, b, func(x, y complex64) complex64 {
			re, im := parts(op, real(x), imag(x), real(y), imag(y))
			return complex(re, im)
		})
	case device.Complex128:
		each(dst, a, b, func(x, y complex128) complex128 {
			re, im := parts(op, real(x), imag(x), real(y), imag(y))
			return complex(re, im)
		})
	}
	return dst
}

// parts returns the sum or product of finite complex numbers, with each step rounded.
func parts[T float32 | float64](op device.Op, a, b, c, d T) (re, im T) {
	if op == device.Sum {
		return a + c, b + d
	}
	return T(a*c) - T(b*d), T(a*d) + T(b*c)
}

// each stores f of all pairs of elements in dst.
func each[T any](dst, a, b []byte, f func(a, b T) T) {
	size := int(unsafe.Sizeof(*new(T)))
	for i := 0; i < len(dst); i += size {
		var x, y T
		decode(a[i:i+size], &x)
		decode(b[i:i+size], &y)
		encode(dst[i:i+size], f(x, y))
	}
}

func decode(p []byte, v any) {
	if _, err := binary.Decode(p, binary.NativeEndian, v); err != nil {
		panic(err)
	}
}

func encode(p []byte, v any) {
	if _, err := binary.Encode(p, binary.NativeEndian, v); err != nil {
		panic(err)
	}
}

// integer returns an operation on integers.
func integer[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](op device.Op) func(a, b T) T {
	return map[device.Op]func(a, b T) T{
		device.Sum:    func(a, b T) T { return a + b },
		device.Prod:   func(a, b T) T { return a * b },
		device.Min:    func(a, b T) T { return min(a, b) },
		device.Max:    func(a, b T) T { return max(a, b) },
		device.BitAnd: func(a, b T) T { return a & b },
		device.BitOr:  func(a, b T) T { return a | b },
		device.BitXor: func(a, b T) T { return a ^ b },
	}[op]
}

// number returns an operation on floating-point numbers, which Go rounds once.
func number[F float32 | float64](op device.Op) func(a, b F) F {
	return map[device.Op]func(a, b F) F{
		device.Sum:  func(a, b F) F { return a + b },
		device.Prod: func(a, b F) F { return a * b },
		device.Min:  func(a, b F) F { return min(a, b) },
		device.Max:  func(a, b F) F { return max(a, b) },
	}[op]
}

// float returns an operation on the bits of float32 or float64.
func float[F float32 | float64, B uint32 | uint64](op device.Op, from func(B) F, bits func(F) B, nan B) func(a, b B) B {
	f := number[F](op)
	return func(a, b B) B {
		c := f(from(a), from(b))
		if c != c {
			return nan
		}
		return bits(c)
	}
}

// narrow returns an operation on the bits of floating-point numbers of 16 or 8 bits. It computes in float64,
// where double rounding does not change the result (Figueroa, "When is double rounding
// innocuous?", SIGNUM Newsletter 30(3), 1995).
func narrow[B uint8 | uint16](op device.Op, in format) func(a, b B) B {
	f := number[float64](op)
	return func(a, b B) B {
		x, y := in.value(uint16(a)), in.value(uint16(b))
		v := f(x, y)
		switch isExtreme := op == device.Min || op == device.Max; {
		case isExtreme && v == v && math.Float64bits(v) == math.Float64bits(x): // is not rounded
			return a
		case isExtreme && v == v:
			return b
		}
		return B(in.bits(v))
	}
}

// A format is a floating-point format of 16 or 8 bits. The bits of its numbers have the order of their values.
type format struct {
	exponent, mantissa int
	largest            uint16 // result that is too large
	infinity           uint16 // end of the numbers: infinity, or nan in a format without
	nan                uint16 // result that is no number
}

func (f format) bias() int { return 1<<(f.exponent-1) - 1 }

func (f format) sign() uint16 { return 1 << (f.exponent + f.mantissa) }

// value decodes bits.
func (f format) value(bits uint16) float64 {
	mantissa := float64(bits & (1<<f.mantissa - 1))
	exponent := int(bits>>f.mantissa) & (1<<f.exponent - 1)
	var v float64
	switch magnitude := bits &^ f.sign(); {
	case magnitude > f.infinity || magnitude == f.nan:
		return math.NaN()
	case magnitude == f.infinity:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(mantissa, 1-f.bias()-f.mantissa)
	default:
		v = math.Ldexp(float64(int(1)<<f.mantissa)+mantissa, exponent-f.bias()-f.mantissa)
	}
	if bits&f.sign() != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

// bits encodes v, rounded to nearest even.
func (f format) bits(v float64) uint16 {
	if math.IsNaN(v) {
		return f.nan
	}
	var sign uint16
	if math.Signbit(v) {
		sign, v = f.sign(), -v
	}
	if math.IsInf(v, 0) {
		return sign | f.largest
	}
	// Consecutive bits are consecutive numbers: a carry of the mantissa increments the exponent,
	// and that of the largest number is infinity.
	_, e := math.Frexp(v)
	e = max(e-1, 1-f.bias())
	n := math.RoundToEven(math.Ldexp(v, f.mantissa-e))
	if n == 0 {
		return sign
	}
	counted := uint64(n) + uint64(e+f.bias()-1)<<f.mantissa
	return sign | uint16(min(counted, uint64(f.largest)))
}
