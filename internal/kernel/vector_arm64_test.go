//go:build !purego

package kernel

// vectorImplementations returns the assembly implementations.
func vectorImplementations() []implementation {
	return []implementation{{
		name: "neon", has: true, reducer: vectorReducer, divider: vectorDivider,
		widen: map[Type]func(dst []float32, src []uint16){
			Float16:  func(dst []float32, src []uint16) { vectorWidenFloat16(dst, src) },
			BFloat16: func(dst []float32, src []uint16) { vectorWidenBFloat16(dst, src) },
		},
		round: map[Type]func(dst []uint16, src []float32){
			Float16:  func(dst []uint16, src []float32) { vectorRoundFloat16(dst, src) },
			BFloat16: func(dst []uint16, src []float32) { vectorRoundBFloat16(dst, src) },
		},
	}}
}
