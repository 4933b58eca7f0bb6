//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// hasAVX512 says that the machine and its system have AVX-512 as all servers
// do since 2017.
func hasAVX512() bool {
	return cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
}

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }

// vectorReducer is the best function in assembly for an operation that is
// defined, or nil.
func vectorReducer(t Type, op Op) func(dst, a, b []byte) {
	switch {
	case hasAVX512():
		return reducersAVX512[t][op]
	case hasAVX2():
		return reducersAVX2[t][op]
	}
	return nil
}

// vectorFolder is the best function in assembly for a fold that is defined, or
// nil.
func vectorFolder(t Type, op Op) func(dst []byte, srcs [][]byte) {
	switch {
	case hasAVX512():
		return foldersAVX512[t][op]
	case hasAVX2():
		return foldersAVX2[t][op]
	}
	return nil
}

// vectorDivider is the best function in assembly for a Type, or nil.
func vectorDivider(t Type) func(dst []byte, n int) {
	switch {
	case hasAVX512():
		return dividersAVX512[t]
	case hasAVX2():
		return dividersAVX2[t]
	}
	return nil
}

// vectorStream copies with non-temporal stores if dst is aligned to 64 bytes and its length a multiple of
// 64. It reports whether it has copied.
func vectorStream(dst, src []byte) bool {
	switch {
	case hasAVX512():
		streamAVX512(base(dst), base(src), len(dst))
	case hasAVX2():
		streamAVX2(base(dst), base(src), len(dst))
	default:
		return false
	}
	return true
}

// The conversions below do whole vectors and return how many elements those
// were. They are called directly, as slices that are passed to a function in a
// variable cannot stay on their owner's stack.

func vectorWidenFloat16(dst []float32, src []uint16) int {
	n := whole(len(src))
	switch {
	case hasAVX512():
		widenFloat16AVX512(at(dst), at(src), 4*n)
	case hasAVX2():
		widenFloat16AVX2(at(dst), at(src), 4*n)
	default:
		return 0
	}
	return n
}

func vectorWidenBFloat16(dst []float32, src []uint16) int {
	n := whole(len(src))
	switch {
	case hasAVX512():
		widenBFloat16AVX512(at(dst), at(src), 4*n)
	case hasAVX2():
		widenBFloat16AVX2(at(dst), at(src), 4*n)
	default:
		return 0
	}
	return n
}

func vectorRoundFloat16(dst []uint16, src []float32) int {
	n := whole(len(src))
	switch {
	case hasAVX512():
		roundFloat16AVX512(at(dst), at(src), 4*n)
	case hasAVX2():
		roundFloat16AVX2(at(dst), at(src), 4*n)
	default:
		return 0
	}
	return n
}

func vectorRoundBFloat16(dst []uint16, src []float32) int {
	n := whole(len(src))
	switch {
	case hasAVX512():
		roundBFloat16AVX512(at(dst), at(src), 4*n)
	case hasAVX2():
		roundBFloat16AVX2(at(dst), at(src), 4*n)
	default:
		return 0
	}
	return n
}
