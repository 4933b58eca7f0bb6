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
		scaleHalves(t, view[uint16](dst), factor)
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

func scaleHalves(t Type, d []uint16, factor float64) {
	widen, round := F16ToF32, F64ToF16
	if t == BFloat16 {
		widen, round = BF16ToF32, F64ToBF16
	}
	var f [1]float64
	for i, v := range d {
		f[0] = float64(widen(v)) * factor
		replaceNaNs(f[:])
		d[i] = round(f[0])
	}
}
