//go:build !purego

package kernel

// vectorReducer returns the assembly function for a defined operation, or nil.
func vectorReducer(t Type, op Op) func(dst, a, b []byte) { return reducersNEON[t][op] }

// vectorFolder returns the assembly function for a defined fold, or nil.
func vectorFolder(t Type, op Op) func(dst []byte, srcs [][]byte) { return foldersNEON[t][op] }

// vectorDivider returns the assembly function for a Type, or nil.
func vectorDivider(t Type) func(dst []byte, n int) { return dividersNEON[t] }

// vectorStream reports false: arm64 has no non-temporal copy here.
func vectorStream(dst, src []byte) bool { return false }

// The conversions handle whole vectors and return their number of elements.

func vectorWidenFloat16(dst []float32, src []uint16) int {
	n := whole(len(src))
	widenFloat16NEON(at(dst), at(src), 4*n)
	return n
}

func vectorWidenBFloat16(dst []float32, src []uint16) int {
	n := whole(len(src))
	widenBFloat16NEON(at(dst), at(src), 4*n)
	return n
}

func vectorRoundFloat16(dst []uint16, src []float32) int {
	n := whole(len(src))
	roundFloat16NEON(at(dst), at(src), 4*n)
	return n
}

func vectorRoundBFloat16(dst []uint16, src []float32) int {
	n := whole(len(src))
	roundBFloat16NEON(at(dst), at(src), 4*n)
	return n
}
