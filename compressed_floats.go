package nexar

import (
	"unsafe"
)

// floats is memory for n float32.
func (t *compressed) floats(n int) []float32 {
	b := t.get(4 * n)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// toFloats rounds src to float32.
func toFloats[T Float](dst []float32, src []T) {
	switch src := any(src).(type) {
	case []float32:
		copy(dst, src)
	case []float64:
		for i, v := range src {
			dst[i] = float32(v)
		}
	case []Float16:
		for i, v := range src {
			dst[i] = v.Float32()
		}
	case []BFloat16:
		for i, v := range src {
			dst[i] = v.Float32()
		}
	}
}

// fromFloats is the sum of so many ranks, or their mean, rounded to T.
func fromFloats[T Float](dst []T, sum []float32, op Op, ranks int) {
	if op == Avg {
		for i := range sum {
			sum[i] /= float32(ranks)
		}
	}
	switch dst := any(dst).(type) {
	case []float32:
		copy(dst, sum)
	case []float64:
		for i, v := range sum {
			dst[i] = float64(v)
		}
	case []Float16:
		for i, v := range sum {
			dst[i] = ToFloat16(v)
		}
	case []BFloat16:
		for i, v := range sum {
			dst[i] = ToBFloat16(v)
		}
	}
}
