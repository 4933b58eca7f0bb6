//go:build !purego && (amd64 || arm64)

package kernel

import "unsafe"

// Functions in assembly take the place of those in Go where the machine has
// the instructions for them: AVX-512, or else AVX2 and F16C, or NEON. They give
// the same bits, which the tests hold them to. The build tag purego leaves
// them out.
//
// They store in the ordinary way, but for Stream. Stores that bypass the cache would
// help only where dst is no operand and nobody reads it soon, or where its lines are
// far away; elsewhere they cost up to nine tenths of the speed.

// blockMax is the longest block in bytes that a kernel wants multiples of.
const blockMax = 32

// A remainder has the ends of two operands that fill no block, padded with zeros. It is on the stack.
type remainder struct{ a, b [blockMax]byte }

func (r *remainder) load(a, b []byte) {
	copy(r.a[:], a)
	copy(r.b[:], b)
}

// betweenBytes is the part of a vector that is folded at a time, if intermediate results are on the
// stack.
const betweenBytes = 4 << 10

// base is where p begins, for assembly.
func base(p []byte) *byte { return unsafe.SliceData(p) }

// conversionBytes is the block size of conversions in assembly, in bytes of float32.
const conversionBytes = 64

// whole is how many elements of a conversion assembly can do.
func whole(n int) int { return n &^ (conversionBytes/4 - 1) }

// at is where p begins, for assembly.
func at[T uint16 | float32](p []T) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(p))) }
