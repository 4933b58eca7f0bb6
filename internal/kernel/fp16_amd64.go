//go:build !purego

package kernel

import "sync"

// hasFP16 reports whether the processor adds and multiplies float16 itself (AVX512-FP16, servers since 2023). Package cpu does not
// know; EDX of leaf 7 of CPUID has the bit.
var hasFP16 = sync.OnceValue(func() bool { return hasAVX512() && features7()>>23&1 == 1 })

// reducerFP16 returns the [Reducer] of sums and products of Float16 without conversions, or nil for others. Each result is rounded once,
// and subnormals are exact, independent of MXCSR.
func reducerFP16(t Type, op Op) func(dst, a, b []byte) {
	switch {
	case t != Float16 || !hasFP16():
		return nil
	case op == Sum || op == Avg:
		return sumFP16
	case op == Prod:
		return prodFP16
	}
	return nil
}

func sumFP16(dst, a, b []byte) {
	check(dst, a, b, 2)
	n := len(dst) &^ 255
	addFP16(base(dst), base(a), base(b), n)
	float16SumOf16AVX512(dst[n:], a[n:], b[n:])
}

func prodFP16(dst, a, b []byte) {
	check(dst, a, b, 2)
	n := len(dst) &^ 255
	mulFP16(base(dst), base(a), base(b), n)
	float16ProdOf16AVX512(dst[n:], a[n:], b[n:])
}

//go:noescape
func addFP16(dst, a, b *byte, n int)

//go:noescape
func mulFP16(dst, a, b *byte, n int)

func features7() uint32
