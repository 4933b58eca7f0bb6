package kernel

import (
	"math"
	"sync"
)

// Bits of float32 numbers, also as seen from float16.
const (
	signMask32 = 1 << 31
	inf32      = 0xff << 23
	quiet32    = 1 << 22

	minNormal16 = (127 - 14) << 23 // 2^-14 as a float32, the least normal float16
	overflow16  = (127 + 16) << 23 // 2^16 as a float32: beyond every float16
	rebias16    = (127 - 15) << 23 // the difference between the exponents' biases
)

// F16ToF32 returns the value of a float16. A NaN keeps its sign and payload and becomes quiet.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	v := uint32(h&0x7fff) << 13
	switch {
	case v < 0x0400<<13: // zero or subnormal: v/2^23 of the distance from 2^-14 to 2^-13
		f := math.Float32frombits(minNormal16+v) - math.Float32frombits(minNormal16)
		return math.Float32frombits(sign | math.Float32bits(f))
	case v < 0x7c00<<13:
		return math.Float32frombits(sign | (v + rebias16))
	case v == 0x7c00<<13:
		return math.Float32frombits(sign | inf32)
	}
	return math.Float32frombits(sign | inf32 | quiet32 | v)
}

// F32ToF16 rounds f to the nearest float16, ties to even. The result is infinity from 65520. A
// NaN keeps its sign and the upper bits of its payload and becomes quiet.
func F32ToF16(f float32) uint16 { return roundF16(math.Float32bits(f)) }

// roundF16 is F32ToF16 on bits: on some machines signaling NaNs do not survive being passed as
// floats.
func roundF16(v uint32) uint16 {
	sign := uint16(v>>16) & 0x8000
	b := v &^ signMask32
	switch {
	case b < overflow16:
		return sign | finiteF16(b)
	case b > inf32:
		return sign | 0x7e00 | uint16(b>>13)&0x03ff
	}
	return sign | 0x7c00
}

// finiteF16 rounds a positive float32 below 2^16. It computes both cases and selects one
// result, since a branch on real gradients is unpredictable.
func finiteF16(b uint32) uint16 {
	// Normal: add half a unit minus 1, or half a unit if the last bit is set, so that a carry
	// rounds up, possibly into the exponent.
	n := (b + 0x0fff + b>>13&1 - rebias16) >> 13
	// Subnormal: a float32 of 0.5 has the same unit as a float16 below 2^-14, so adding 0.5
	// rounds.
	sub := math.Float32bits(math.Float32frombits(b) + 0.5)
	if b < minNormal16 {
		n = sub
	}
	return uint16(n)
}

// F64ToF16 rounds f to the nearest float16 as F32ToF16 does, once.
func F64ToF16(f float64) uint16 { return roundF16(toOdd(f)) }

// toOdd returns f as the bits of a float32, rounded to odd: an inexact result is
// the neighbor with its last bit set. Rounding that again, to at most 22
// bits, equals rounding once (Boldo and Melquiond, "Emulation of a FMA and correctly
// rounded sums: proved algorithms using rounding to odd", IEEE Transactions
// on Computers 57(4), 2008).
func toOdd(f float64) uint32 {
	if f != f {
		return nanBits(f)
	}
	g := float32(f)
	v := math.Float32bits(g)
	if math.Abs(float64(g)) > math.Abs(f) {
		v--
	}
	if float64(g) != f {
		v |= 1
	}
	return v
}

// nanBits returns the NaN f as a quiet float32 with the upper bits of its payload.
func nanBits(f float64) uint32 {
	b := math.Float64bits(f)
	return uint32(b>>32)&signMask32 | inf32 | quiet32 | uint32(b>>29)&(1<<23-1)
}

// ConvertF16ToF32 sets dst to the values of src. Different lengths panic.
func ConvertF16ToF32(dst []float32, src []uint16) {
	checkLengths(len(dst), len(src))
	n := vectorWidenFloat16(dst, src)
	if len(src)-n >= worthATable {
		widenFloat16(dst[n:], src[n:])
		return
	}
	for ; n < len(src); n++ {
		dst[n] = F16ToF32(src[n])
	}
}

// checkLengths panics unless the slices of a conversion have the same length.
func checkLengths(dst, src int) {
	if dst != src {
		panic("kernel: conversion between slices of different lengths")
	}
}

// worthATable is the minimum number of elements left after assembly that justifies building and
// using the table of all values.
const worthATable = 16

func widenFloat16(dst []float32, src []uint16) {
	values, out := f16Values(), bits32(dst)
	for i, h := range src {
		out[i] = values[h]
	}
}

// f16Values holds the float32 of every float16. It takes 256 KiB of cache, but converts
// 16 Ki different numbers three times as fast as arithmetic does, and at the same speed for
// all numbers.
var f16Values = sync.OnceValue(func() *[1 << 16]uint32 {
	t := new([1 << 16]uint32)
	for i := range t {
		t[i] = math.Float32bits(F16ToF32(uint16(i)))
	}
	return t
})

// ConvertF32ToF16 rounds src to dst, as F32ToF16 does. Different lengths panic.
func ConvertF32ToF16(dst []uint16, src []float32) {
	checkLengths(len(dst), len(src))
	n := vectorRoundFloat16(dst, src)
	roundFloat16(dst[n:], src[n:])
}

func roundFloat16(dst []uint16, src []float32) {
	for i, v := range bits32(src) {
		if b := v &^ signMask32; b < overflow16 {
			dst[i] = uint16(v>>16)&0x8000 | finiteF16(b)
		} else {
			dst[i] = roundF16(v)
		}
	}
}
