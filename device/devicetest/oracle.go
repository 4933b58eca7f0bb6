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
		each(dst, a, b, half(op, format{exponent: 5, mantissa: 10}))
	case device.BFloat16:
		each(dst, a, b, half(op, format{exponent: 8, mantissa: 7}))
	case device.Float8E4M3, device.Float8E5M2:
		each(dst, a, b, eighth(t, op))
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

// half returns an operation on the bits of 16-bit floating-point numbers. It computes in float64,
// where double rounding does not change the result (Figueroa, "When is double rounding
// innocuous?", SIGNUM Newsletter 30(3), 1995).
func half(op device.Op, in format) func(a, b uint16) uint16 {
	f := number[float64](op)
	return func(a, b uint16) uint16 { return in.bits(f(in.value(a), in.value(b))) }
}

// eighth returns an operation on the bits of 8-bit floating-point numbers, of which those from 0 to largest have increasing values.
// It searches the nearest number.
func eighth(t device.Type, op device.Op) func(a, b uint8) uint8 {
	const nan, sign = 0x7F, 0x80
	value, largest := func(bits uint8) float64 { return (format{5, 10}).value(uint16(bits) << 8) }, uint8(0x7B)
	if t == device.Float8E4M3 {
		largest = 0x7E
		value = func(bits uint8) float64 {
			if bits&nan == nan {
				return math.NaN()
			}
			v := math.Ldexp(float64(bits&7), -9)
			if e := int(bits >> 3 & 15); e > 0 {
				v = math.Ldexp(float64(8+bits&7), e-10)
			}
			return math.Copysign(v, 1-float64(bits>>7)*2)
		}
	}
	f := number[float64](op)
	return func(a, b uint8) uint8 {
		v := f(value(a), value(b))
		if v != v {
			return nan
		}
		if op == device.Min || op == device.Max {
			if math.Float64bits(v) == math.Float64bits(value(a)) {
				return a
			}
			return b
		}
		nearest := uint8(0)
		for n := range largest + 1 {
			was, is := math.Abs(math.Abs(v)-value(nearest)), math.Abs(math.Abs(v)-value(n))
			if is < was || is == was && n%2 == 0 || math.IsInf(v, 0) {
				nearest = n
			}
		}
		if math.Signbit(v) {
			nearest |= sign
		}
		return nearest
	}
}

// A format is a floating-point format of 16 bits, as in IEEE 754.
type format struct{ exponent, mantissa int }

func (f format) bias() int { return 1<<(f.exponent-1) - 1 }

// value decodes bits.
func (f format) value(bits uint16) float64 {
	mantissa := float64(bits & (1<<f.mantissa - 1))
	exponent := int(bits>>f.mantissa) & (1<<f.exponent - 1)
	var v float64
	switch {
	case exponent == 1<<f.exponent-1 && mantissa != 0:
		return math.NaN()
	case exponent == 1<<f.exponent-1:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(mantissa, 1-f.bias()-f.mantissa)
	default:
		v = math.Ldexp(float64(int(1)<<f.mantissa)+mantissa, exponent-f.bias()-f.mantissa)
	}
	if bits>>15 == 1 {
		v = math.Copysign(v, -1)
	}
	return v
}

// bits encodes v, rounded to nearest even.
func (f format) bits(v float64) uint16 {
	infinity := uint16(1<<f.exponent-1) << f.mantissa
	if math.IsNaN(v) {
		return infinity | 1<<(f.mantissa-1)
	}
	var sign uint16
	if math.Signbit(v) {
		sign, v = 1<<15, -v
	}
	if math.IsInf(v, 0) {
		return sign | infinity
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
	return sign | uint16(min(counted, uint64(infinity)))
}
