package kernel

// Scale multiplies the elements of dst, floating-point numbers of type t, by factor. A product is
// computed in float64 and rounded once. With the factor 0 the elements become 0, NaNs included.
// dst is aligned as elements of the type are.
func Scale(t Type, dst []byte, factor float64) {
	if factor == 0 {
		clear(dst)
		return
	}
	switch t {
	case Float32:
		scaleFloats(view[float32](dst), factor)
	case Float64:
		scaleFloats(view[float64](dst), factor)
	case Float16, BFloat16:
		eachNarrow(t, view[uint16](dst), func(x float64) float64 { return x * factor })
	case Float8E4M3, Float8E5M2:
		eachF8(t, dst, func(x float64) float64 { return x * factor })
	default:
		panic("kernel: scale of no floating-point type")
	}
}

func scaleFloats[T float](d []T, factor float64) {
	for i, v := range d {
		d[i] = T(float64(v) * factor)
	}
	replaceNaNs(d)
}
