package kernel

// ToFloats rounds the elements of src, of a floating-point type, to float32. Src must be
// aligned for its elements, and dst have as many.
func ToFloats(dst []float32, t Type, src []byte) {
	switch t {
	case Float32:
		copy(dst, view[float32](src))
	case Float64:
		for i, v := range view[float64](src) {
			dst[i] = float32(v)
		}
	case Float16:
		ConvertF16ToF32(dst, view[uint16](src))
	case BFloat16:
		ConvertBF16ToF32(dst, view[uint16](src))
	case Float8E4M3, Float8E5M2:
		for i, b := range src {
			dst[i] = F8ToF32(t, b)
		}
	}
}

// FromFloats rounds src to elements of a type. See [ToFloats].
func FromFloats(dst []byte, t Type, src []float32) {
	switch t {
	case Float32:
		copy(view[float32](dst), src)
	case Float64:
		to := view[float64](dst)
		for i, v := range src {
			to[i] = float64(v)
		}
	case Float16:
		ConvertF32ToF16(view[uint16](dst), src)
	case BFloat16:
		ConvertF32ToBF16(view[uint16](dst), src)
	case Float8E4M3, Float8E5M2:
		for i, f := range src {
			dst[i] = F32ToF8(t, f)
		}
	}
}
