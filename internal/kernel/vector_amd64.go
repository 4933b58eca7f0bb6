//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// hasAVX512 reports whether processor and system support the AVX-512 extensions that are common
// to all servers since 2017.
func hasAVX512() bool {
	return cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
}

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }

// vectorReducer returns the best assembly function for a defined operation, or nil.
func vectorReducer(t Type, op Op) func(dst, a, b []byte) {
	switch {
	case hasAVX512():
		return reducersAVX512[t][op]
	case hasAVX2():
		return reducersAVX2[t][op]
	}
	return nil
}

// vectorFolder returns the best assembly function for a defined fold, or nil.
func vectorFolder(t Type, op Op) func(dst []byte, srcs [][]byte) {
	switch {
	case hasAVX512():
		return foldersAVX512[t][op]
	case hasAVX2():
		return foldersAVX2[t][op]
	}
	return nil
}

// vectorDivider returns the best assembly function for a Type, or nil.
func vectorDivider(t Type) func(dst []byte, n int) {
	switch {
	case hasAVX512():
		return dividersAVX512[t]
	case hasAVX2():
		return dividersAVX2[t]
	}
	return nil
}

// vectorStream copies with non-temporal stores if dst is aligned to 64 bytes and its length is
// a multiple of 64. It reports whether it has copied.
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

// The conversions below handle whole vectors and return their number of elements. They are
// called directly, since slices passed to a function variable escape from the stack.

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
