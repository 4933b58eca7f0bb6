package kernel

func intSum[T integer](dst, a, b []byte)  { reduceInts[T](Sum, dst, a, b) }
func intProd[T integer](dst, a, b []byte) { reduceInts[T](Prod, dst, a, b) }
func intMin[T integer](dst, a, b []byte)  { reduceInts[T](Min, dst, a, b) }
func intMax[T integer](dst, a, b []byte)  { reduceInts[T](Max, dst, a, b) }

func reduceInts[T integer](op Op, dst, a, b []byte) {
	check(dst, a, b, sizeOf[T]())
	if direct(dst, a, b, sizeOf[T]()) {
		loopInts(op, view[T](dst), view[T](a), view[T](b))
		return
	}
	stageInts[T](op, dst, a, b)
}

// stageInts is reduceInts for an alignment that the machine does not support.
func stageInts[T integer](op Op, dst, a, b []byte) {
	var s stage
	for len(dst) > 0 {
		x, y := s.load(a, b)
		loopInts(op, view[T](x), view[T](x), view[T](y))
		n := copy(dst, x)
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

func loopInts[T integer](op Op, d, x, y []T) {
	switch op {
	case Sum:
		addInts(d, x, y)
	case Prod:
		mulInts(d, x, y)
	case Min:
		minInts(d, x, y)
	case Max:
		maxInts(d, x, y)
	case BitAnd:
		andInts(d, x, y)
	case BitOr:
		orInts(d, x, y)
	case BitXor:
		xorInts(d, x, y)
	case sumOf8:
		addBytes(d, x, y)
	case sumOf16:
		addPairs(d, x, y)
	default:
		panic("kernel: no such operation on integers")
	}
}

func addInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]
	}
}

func mulInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] * y[i]
	}
}

// minInts compares small integers as larger ones: 8-bit integers have no conditional move, and
// a branch would be mispredicted every other time.
func minInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	if sizeOf[T]() < 4 {
		for i := range d {
			d[i] = T(min(int32(x[i]), int32(y[i])))
		}
		return
	}
	for i := range d {
		d[i] = min(x[i], y[i])
	}
}

func maxInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	if sizeOf[T]() < 4 {
		for i := range d {
			d[i] = T(max(int32(x[i]), int32(y[i])))
		}
		return
	}
	for i := range d {
		d[i] = max(x[i], y[i])
	}
}
