package kernel

// partOf returns the type of the parts of complex elements.
func partOf(t Type) (part Type, isComplex bool) {
	switch t {
	case Complex64:
		return Float32, true
	case Complex128:
		return Float64, true
	}
	return 0, false
}

// complexReducer is [Reducer] for complex elements with parts of the given type.
func complexReducer(part Type, op Op) func(dst, a, b []byte) {
	switch {
	case op == Sum || op == Avg:
		return Reducer(part, Sum)
	case op == Prod && part == Float32:
		return complexProd[float32]
	case op == Prod:
		return complexProd[float64]
	}
	return nil
}

func complexProd[T float](dst, a, b []byte) {
	check(dst, a, b, 2*sizeOf[T]())
	if direct(dst, a, b, sizeOf[T]()) {
		mulComplex(view[T](dst), view[T](a), view[T](b))
		return
	}
	var s stage
	for len(dst) > 0 {
		x, y := s.load(a, b)
		mulComplex(view[T](x), view[T](x), view[T](y))
		n := copy(dst, x)
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

// mulComplex multiplies pairs of a real and an imaginary part. The conversions keep the
// compiler from fusing a product with the addition, which would change the result on some
// machines.
func mulComplex[T float](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := 0; i+1 < len(d); i += 2 {
		re := T(x[i]*y[i]) - T(x[i+1]*y[i+1])
		im := T(x[i]*y[i+1]) + T(x[i+1]*y[i])
		d[i], d[i+1] = re, im
	}
	replaceNaNs(d)
}
