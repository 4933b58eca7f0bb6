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
