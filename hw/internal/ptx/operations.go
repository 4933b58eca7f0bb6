package ptx

import (
	"math"
	"math/bits"
)

// mask32 returns the part of a number that a register of 32 bits has.
func mask32(v uint64) uint64 { return v & math.MaxUint32 }

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func f64(v uint64) float64 { return math.Float64frombits(v) }

// bits32 returns the bits of a result. A NaN is the one that GPUs return.
func bits32(f float32) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(f))
}

// bits64 is bits32 for float64. GPUs do not define which NaN a result is; this one is negative, with a
// payload.
func bits64(f float64) uint64 {
	if f != f {
		return 0xfff8000000000123
	}
	return math.Float64bits(f)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// operation returns the function of an instruction and the number of its inputs.
func operation(op string) (f func(v [4]uint64) uint64, inputs int) {
	if o, ok := operations[op]; ok {
		return o.f, o.n
	}
	return nil, 0
}

type function struct {
	n int
	f func(v [4]uint64) uint64
}

var operations = map[string]function{
	"cvta.to.global.u64": {1, func(v [4]uint64) uint64 { return v[0] }},
	"mov.u32":            {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"mov.u64":            {1, func(v [4]uint64) uint64 { return v[0] }},
	"mov.b32":            {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"mov.b64":            {1, func(v [4]uint64) uint64 { return v[0] }},

	"add.u32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] + v[1]) }},
	"add.u64":      {2, func(v [4]uint64) uint64 { return v[0] + v[1] }},
	"mul.lo.u32":   {2, func(v [4]uint64) uint64 { return mask32(v[0] * v[1]) }},
	"mul.lo.u64":   {2, func(v [4]uint64) uint64 { return v[0] * v[1] }},
	"mul.wide.u32": {2, func(v [4]uint64) uint64 { return mask32(v[0]) * mask32(v[1]) }},
	"div.u64":      {2, func(v [4]uint64) uint64 { return v[0] / max(v[1], 1) }},
	"div.s64":      {2, func(v [4]uint64) uint64 { return uint64(int64(v[0]) / max(int64(v[1]), 1)) }},
	"min.u32":      {2, func(v [4]uint64) uint64 { return min(mask32(v[0]), mask32(v[1])) }},
	"max.u32":      {2, func(v [4]uint64) uint64 { return max(mask32(v[0]), mask32(v[1])) }},
	"min.s32":      {2, func(v [4]uint64) uint64 { return uint64(uint32(min(int32(v[0]), int32(v[1])))) }},
	"max.s32":      {2, func(v [4]uint64) uint64 { return uint64(uint32(max(int32(v[0]), int32(v[1])))) }},
	"min.u64":      {2, func(v [4]uint64) uint64 { return min(v[0], v[1]) }},
	"max.u64":      {2, func(v [4]uint64) uint64 { return max(v[0], v[1]) }},
	"min.s64":      {2, func(v [4]uint64) uint64 { return uint64(min(int64(v[0]), int64(v[1]))) }},
	"max.s64":      {2, func(v [4]uint64) uint64 { return uint64(max(int64(v[0]), int64(v[1]))) }},
	"and.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] & v[1]) }},
	"or.b32":       {2, func(v [4]uint64) uint64 { return mask32(v[0] | v[1]) }},
	"xor.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] ^ v[1]) }},
	"and.b64":      {2, func(v [4]uint64) uint64 { return v[0] & v[1] }},
	"or.b64":       {2, func(v [4]uint64) uint64 { return v[0] | v[1] }},
	"xor.b64":      {2, func(v [4]uint64) uint64 { return v[0] ^ v[1] }},
	"shl.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] << v[1]) }},
	"shr.u32":      {2, func(v [4]uint64) uint64 { return mask32(v[0]) >> v[1] }},
	"bfe.u32":      {3, func(v [4]uint64) uint64 { return mask32(v[0]) >> v[1] & (1<<v[2] - 1) }},
	"bfe.s32": {3, func(v [4]uint64) uint64 {
		return uint64(uint32(int32(uint32(v[0])<<(32-v[1]-v[2])) >> (32 - v[2])))
	}},
	"bfi.b32": {4, func(v [4]uint64) uint64 {
		field := uint64(1)<<v[3] - 1
		return mask32(v[1]&^(field<<v[2]) | v[0]&field<<v[2])
	}},

	"setp.ge.u32":  {2, func(v [4]uint64) uint64 { return flag(mask32(v[0]) >= mask32(v[1])) }},
	"setp.ge.u64":  {2, func(v [4]uint64) uint64 { return flag(v[0] >= v[1]) }},
	"setp.nan.f32": {2, func(v [4]uint64) uint64 { return flag(f32(v[0]) != f32(v[0]) || f32(v[1]) != f32(v[1])) }},
	"setp.nan.f64": {2, func(v [4]uint64) uint64 { return flag(f64(v[0]) != f64(v[0]) || f64(v[1]) != f64(v[1])) }},
	"selp.b32":     {3, choose}, "selp.f32": {3, choose}, "selp.f64": {3, choose},

	"add.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) + f32(v[1])) }},
	"sub.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) - f32(v[1])) }},
	"mul.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) * f32(v[1])) }},
	"div.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) / f32(v[1])) }},
	"add.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) + f64(v[1])) }},
	"sub.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) - f64(v[1])) }},
	"mul.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) * f64(v[1])) }},
	"div.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) / f64(v[1])) }},
	"min.f32":    {2, func(v [4]uint64) uint64 { return bits32(extreme(f32(v[0]), f32(v[1]), false)) }},
	"max.f32":    {2, func(v [4]uint64) uint64 { return bits32(extreme(f32(v[0]), f32(v[1]), true)) }},
	"min.f64":    {2, func(v [4]uint64) uint64 { return bits64(extreme(f64(v[0]), f64(v[1]), false)) }},
	"max.f64":    {2, func(v [4]uint64) uint64 { return bits64(extreme(f64(v[0]), f64(v[1]), true)) }},

	"cvt.u64.u32":    {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"cvt.s64.s32":    {1, func(v [4]uint64) uint64 { return uint64(int64(int32(v[0]))) }},
	"cvt.u32.u64":    {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"cvt.u32.u16":    {1, func(v [4]uint64) uint64 { return v[0] & math.MaxUint16 }},
	"cvt.u16.u32":    {1, func(v [4]uint64) uint64 { return v[0] & math.MaxUint16 }},
	"cvt.rn.f32.u64": {1, func(v [4]uint64) uint64 { return bits32(float32(v[0])) }},
	"cvt.rn.f64.u64": {1, func(v [4]uint64) uint64 { return bits64(float64(v[0])) }},
	"cvt.f32.f16":    {1, func(v [4]uint64) uint64 { return bits32(widen(uint16(v[0]))) }},
	"cvt.rn.f16.f32": {1, func(v [4]uint64) uint64 { return uint64(narrow(f32(v[0]))) }},
}

func choose(v [4]uint64) uint64 {
	if v[2] != 0 {
		return v[0]
	}
	return v[1]
}

// extreme is min or max of PTX: a NaN counts only if both are, and -0 is less than +0.
func extreme[T float32 | float64](a, b T, most bool) T {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case most:
		return max(a, b)
	}
	return min(a, b)
}

// widen returns the value of a binary16.
func widen(h uint16) float32 {
	exponent, mantissa := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exponent {
	case 0x1f:
		if mantissa != 0 {
			return float32(math.NaN())
		}
		v = math.Inf(1)
	case 0:
		v = math.Ldexp(mantissa, -24)
	default:
		v = math.Ldexp(1024+mantissa, exponent-25)
	}
	if h>>15 == 1 {
		v = -v
	}
	return float32(v)
}

// narrow rounds to binary16. It counts units of the last place, which are whole numbers in float64.
func narrow(f float32) uint16 {
	if f != f {
		return 0x7fff
	}
	sign := uint16(math.Float32bits(f) >> 16 & 0x8000)
	v := math.Abs(float64(f))
	if math.IsInf(v, 1) {
		return sign | 0x7c00
	}
	_, e := math.Frexp(v)
	e = max(e-1, -14)
	units := uint64(math.RoundToEven(math.Ldexp(v, 10-e)))
	if bits.Len64(units) > 11 { // a carry
		units, e = units/2, e+1
	}
	if e > 15 {
		return sign | 0x7c00
	}
	if units < 1024 {
		return sign | uint16(units)
	}
	return sign | uint16(e+15)<<10 | uint16(units-1024)
}
