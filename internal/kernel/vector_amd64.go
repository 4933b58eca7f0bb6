//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// hasAVX512 reports whether processor and system support the AVX-512 extensions that are common
// to all servers since 2017.
func hasAVX512() bool {
	return cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasBMI2
}

func hasAVX2() bool { return cpu.X86.HasAVX2 && cpu.X86.HasF16C }

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
