package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
)

// The oracle reduces single elements, given as bits, in the simplest way: it computes
// exactly, with math/big, and rounds by searching for the nearest value of the format. It
// shares no code with the tested functions.

// A format is a floating-point format.
type format struct {
	mantissa, exponent uint
	largest            uint64 // the number to which results are saturated, or 0: they become infinite
}

var formats = map[Type]format{
	Float16: {mantissa: 10, exponent: 5}, BFloat16: {mantissa: 7, exponent: 8}, Float32: {mantissa: 23, exponent: 8}, Float64: {mantissa: 52, exponent: 11},
	Float8E4M3: {3, 4, 0x7e}, Float8E5M2: {2, 5, 0x7b},
}

// isE4M3 reports whether the format has numbers with the largest exponent, and no infinities.
func (f format) isE4M3() bool { return f.exponent == 4 }

func (f format) sign() uint64 { return 1 << (f.mantissa + f.exponent) }

// infinity returns the bits after those of the largest number.
func (f format) infinity() uint64 {
	if f.isE4M3() {
		return f.nan()
	}
	return (1<<f.exponent - 1) << f.mantissa
}

func (f format) nan() uint64 {
	if f.largest != 0 {
		return 0x7f
	}
	return f.infinity() | 1<<(f.mantissa-1)
}

func (f format) isNaN(bits uint64) bool {
	return bits&^f.sign() > f.infinity() || f.isE4M3() && bits&^f.sign() == f.infinity()
}

// saturated returns bits, or the largest number instead of infinity.
func (f format) saturated(bits uint64) uint64 {
	if f.largest != 0 && bits&^f.sign() == f.infinity() {
		return bits&f.sign() | f.largest
	}
	return bits
}

// value returns the number of bits, which must not be a NaN or infinity.
func (f format) value(bits uint64) *big.Float {
	e := int(bits &^ f.sign() >> f.mantissa)
	m := bits & (1<<f.mantissa - 1)
	if e > 0 {
		m |= 1 << f.mantissa
		e--
	}
	x := new(big.Float).SetUint64(m)
	x.SetMantExp(x, e-(1<<(f.exponent-1)-2)-int(f.mantissa))
	if bits&f.sign() != 0 {
		x.Neg(x)
	}
	return x
}

// nearest returns the number of the format closest to x, ties to even. Positive numbers grow
// with their bits, so a binary search finds it. The bits after the largest number are infinity.
func (f format) nearest(x *big.Float) uint64 {
	var sign uint64
	if x.Signbit() {
		sign = f.sign()
	}
	abs := new(big.Float).Abs(x)
	if abs.IsInf() {
		return f.saturated(sign | f.infinity())
	}
	lo, hi := uint64(0), f.infinity() // value(lo) ≤ abs, and abs < value(hi) or too large
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; f.value(mid).Cmp(abs) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	below := exact().Sub(abs, f.value(lo))
	above := exact().Sub(f.value(hi), abs)
	switch c := below.Cmp(above); {
	case c < 0, c == 0 && lo&1 == 0:
		return sign | lo
	}
	return f.saturated(sign | hi)
}

// round is nearest for a float64 that may be NaN.
func (f format) round(x float64) uint64 {
	if x != x {
		return f.nan()
	}
	return f.nearest(new(big.Float).SetFloat64(x))
}

// exact returns a big.Float that holds the sum or product of any two float64.
func exact() *big.Float { return new(big.Float).SetPrec(4300) }

func (f format) reduce(op Op, a, b uint64) uint64 {
	if f.isNaN(a) || f.isNaN(b) {
		return f.nan()
	}
	switch op {
	case Min, Max:
		if f.less(a, b) == (op == Min) {
			return a
		}
		return b
	}
	signs := (a ^ b) & f.sign()
	infA, infB := a&^f.sign() == f.infinity(), b&^f.sign() == f.infinity()
	zeroA, zeroB := a&^f.sign() == 0, b&^f.sign() == 0
	if op == Prod {
		switch {
		case infA && zeroB, infB && zeroA:
			return f.nan()
		case infA, infB:
			return f.saturated(signs | f.infinity())
		}
		return signs | f.nearest(exact().Mul(f.value(a), f.value(b)))&^f.sign()
	}
	switch {
	case infA && infB && signs != 0:
		return f.nan()
	case infA:
		return f.saturated(a)
	case infB:
		return f.saturated(b)
	case zeroA && zeroB:
		return a & b
	}
	return f.nearest(exact().Add(f.value(a), f.value(b)))
}

// less reports whether a is before b. It orders -0 before +0.
func (f format) less(a, b uint64) bool {
	key := func(v uint64) int64 {
		if v&f.sign() != 0 {
			return -int64(v&^f.sign()) - 1
		}
		return int64(v)
	}
	return key(a) < key(b)
}

// wantReduce returns a op b, as bits of type t.
func wantReduce(t Type, op Op, a, b uint64) uint64 {
	if f, ok := formats[t]; ok {
		return f.reduce(op, a, b)
	}
	x, y := integerValue(t, a), integerValue(t, b)
	z := new(big.Int)
	switch op {
	case Sum, Avg:
		z.Add(x, y)
	case Prod:
		z.Mul(x, y)
	case Min, Max:
		z = x
		if (x.Cmp(y) > 0) == (op == Min) {
			z = y
		}
	case BitAnd:
		z.And(x, y)
	case BitOr:
		z.Or(x, y)
	case BitXor:
		z.Xor(x, y)
	}
	return integerBits(t, z)
}

// wantQuotient returns a/n, as bits of type t.
func wantQuotient(t Type, a uint64, n int) uint64 {
	f, ok := formats[t]
	if !ok {
		return integerBits(t, new(big.Int).Quo(integerValue(t, a), big.NewInt(int64(n))))
	}
	switch {
	case f.isNaN(a):
		return f.nan()
	case a&^f.sign() == f.infinity() || a&^f.sign() == 0:
		return f.saturated(a)
	}
	q := exact().Quo(f.value(a), new(big.Float).SetInt64(int64(n)))
	return a&f.sign() | f.nearest(q)&^f.sign()
}

func isSigned(t Type) bool { return t <= Int64 }

func integerValue(t Type, bits uint64) *big.Int {
	x := new(big.Int).SetUint64(bits)
	if top := uint(8*t.Size() - 1); isSigned(t) && bits>>top != 0 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), top+1))
	}
	return x
}

// integerBits returns x modulo the range of t.
func integerBits(t Type, x *big.Int) uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	return new(big.Int).Mod(x, modulus).Uint64()
}

// bitsOf returns element i of p.
func bitsOf(t Type, p []byte, i int) uint64 {
	p = p[i*t.Size():]
	switch t.Size() {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(p))
	case 4:
		return uint64(binary.NativeEndian.Uint32(p))
	}
	return binary.NativeEndian.Uint64(p)
}

// setBits sets element i of p.
func setBits(t Type, p []byte, i int, bits uint64) {
	p = p[i*t.Size():]
	switch t.Size() {
	case 1:
		p[0] = byte(bits)
	case 2:
		binary.NativeEndian.PutUint16(p, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(p, uint32(bits))
	default:
		binary.NativeEndian.PutUint64(p, bits)
	}
}

// landmarks returns the boundary values of the arithmetic of a type, as bits.
func landmarks(t Type) []uint64 {
	f, ok := formats[t]
	if !ok {
		top := uint64(1) << (8*t.Size() - 1)
		return []uint64{0, 1, 2, 3, top - 2, top - 1, top, top + 1, top + (top - 2), top + (top - 1)}
	}
	one, quiet := f.infinity()>>1&^(1<<f.mantissa-1), uint64(1)<<(f.mantissa-1)
	var all []uint64
	for _, v := range []uint64{
		0, 1, 2, 1<<f.mantissa - 1, 1 << f.mantissa, 1<<f.mantissa + 1, // subnormal and least normal
		one - 1, one, one + 1, one + quiet, f.infinity() - 1, f.infinity(),
		f.infinity() | 1, f.infinity() | 5, f.nan(), f.nan() | 3, f.nan() | quiet - 1, // NaNs
		f.infinity() - 1<<f.mantissa, one >> 1, f.infinity() - one>>1,
	} {
		all = append(all, v, v|f.sign())
	}
	return all
}

// realTypes returns all types but the complex ones.
func realTypes() (list []Type) {
	for t := Int8; t <= Float8E5M2; t++ {
		if !t.Complex() {
			list = append(list, t)
		}
	}
	return list
}

var allOps = []Op{Sum, Prod, Min, Max, Avg, BitAnd, BitOr, BitXor}

// float64Of returns the float64 of bits, which must be exact.
func float64Of(f format, bits uint64) float64 {
	switch {
	case f.isNaN(bits):
		return math.NaN()
	case bits&^f.sign() == f.infinity():
		return math.Inf(1 - 2*int(bits>>(f.mantissa+f.exponent)))
	}
	x, _ := f.value(bits).Float64()
	return x
}
