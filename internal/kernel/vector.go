//go:build !purego && (amd64 || arm64)

package kernel

import "unsafe"

// Assembly replaces the Go functions on processors with the instructions: AVX-512, with FP16 where
// there is, or AVX2 and F16C, or NEON. It returns the same bits; the tests compare them. The build tag purego
// excludes it.
//
// The functions vectorReducer and vectorDivider return the best assembly function, or nil. Conversions such as
// vectorWidenFloat16 handle whole vectors and return their number of elements. They are called directly, since slices that are
// passed to a function variable escape from the stack.
//
// Stores are ordinary, except in Stream. Stores that bypass the cache would help only if dst is
// no operand and is not read soon, or if its lines are in distant caches; elsewhere they cost
// up to nine tenths of the speed.

// blockMax is the longest block of a kernel in bytes.
const blockMax = 32

// A remainder contains the ends of two operands, padded with zeros to a block. It is on the
// stack.
type remainder struct{ a, b [blockMax]byte }

func (r *remainder) load(a, b []byte) {
	copy(r.a[:], a)
	copy(r.b[:], b)
}

// base returns the address of p, for assembly.
func base(p []byte) *byte { return unsafe.SliceData(p) }

// conversionBytes is the block size of conversions in assembly, in bytes of float32.
const conversionBytes = 64

// whole returns the number of elements, of n, that a conversion in assembly handles.
func whole(n int) int { return n &^ (conversionBytes/4 - 1) }

// at returns the address of p, for assembly.
func at[T uint16 | float32](p []T) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(p))) }
