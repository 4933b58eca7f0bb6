//go:build !purego

package kernel

// vectorImplementations returns the assembly implementations.
func vectorImplementations() []implementation {
	type (
		widen = map[Type]func(dst []float32, src []uint16)
		round = map[Type]func(dst []uint16, src []float32)
	)
	return []implementation{
		{name: "avx512fp16", has: hasFP16(), reducer: reducerFP16, divider: func(Type) func(dst []byte, n int) { return nil }},
		{
			name: "avx2", has: hasAVX2(),
			reducer: func(t Type, op Op) func(dst, a, b []byte) { return reducersAVX2[t][op] },
			divider: func(t Type) func(dst []byte, n int) { return dividersAVX2[t] },
			widen: widen{
				Float16:  func(dst []float32, src []uint16) { widenFloat16AVX2(at(dst), at(src), 4*len(src)) },
				BFloat16: func(dst []float32, src []uint16) { widenBFloat16AVX2(at(dst), at(src), 4*len(src)) },
			},
			round: round{
				Float16:  func(dst []uint16, src []float32) { roundFloat16AVX2(at(dst), at(src), 4*len(src)) },
				BFloat16: func(dst []uint16, src []float32) { roundBFloat16AVX2(at(dst), at(src), 4*len(src)) },
			},
		},
		{
			name: "avx512", has: hasAVX512(),
			reducer: func(t Type, op Op) func(dst, a, b []byte) { return reducersAVX512[t][op] },
			divider: func(t Type) func(dst []byte, n int) { return dividersAVX512[t] },
			widen: widen{
				Float16:  func(dst []float32, src []uint16) { widenFloat16AVX512(at(dst), at(src), 4*len(src)) },
				BFloat16: func(dst []float32, src []uint16) { widenBFloat16AVX512(at(dst), at(src), 4*len(src)) },
			},
			round: round{
				Float16:  func(dst []uint16, src []float32) { roundFloat16AVX512(at(dst), at(src), 4*len(src)) },
				BFloat16: func(dst []uint16, src []float32) { roundBFloat16AVX512(at(dst), at(src), 4*len(src)) },
			},
		},
	}
}
