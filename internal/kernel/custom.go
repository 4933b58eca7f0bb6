package kernel

import (
	"sync"
	"unsafe"
)

// Custom returns a reduction of vectors of T by a function that sets dst[i] = dst[i] ∘ src[i]
// for all i. The function gets copies and may modify both.
func Custom[T any](combine func(dst, src []T)) func(dst, a, b []byte) {
	scratch := sync.Pool{New: func() any { return new([2][]T) }}
	return func(dst, a, b []byte) {
		// The operands may be memory of another rank, which combine must not change, and
		// dst may be one of them.
		s := scratch.Get().(*[2][]T)
		defer scratch.Put(s)
		for i, operand := range [2][]byte{a, b} {
			n := len(operand) / int(unsafe.Sizeof(*new(T)))
			s[i] = append(s[i][:0], make([]T, n)...)
			copy(memory(s[i]), operand)
		}
		combine(s[0], s[1])
		copy(dst, memory(s[0]))
	}
}

// memory returns the bytes of s.
func memory[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}
