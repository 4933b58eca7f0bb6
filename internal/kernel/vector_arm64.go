//go:build !purego

package kernel

// vectorReducer is the function in assembly for an operation that is defined,
// or nil.
func vectorReducer(t Type, op Op) func(dst, a, b []byte) { return reducersNEON[t][op] }

// vectorFolder is the function in assembly for a fold that is defined, or nil.
func vectorFolder(t Type, op Op) func(dst []byte, srcs [][]byte) { return foldersNEON[t][op] }

// vectorDivider is the function in assembly for a Type, or nil.
func vectorDivider(t Type) func(dst []byte, n int) { return dividersNEON[t] }

// vectorStream would copy past the caches, and does not.
func vectorStream(dst, src []byte) bool { return false }

// The conversions do whole vectors and return how many elements those were.

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
