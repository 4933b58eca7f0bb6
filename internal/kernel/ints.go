package kernel

func loopInts[T integer](op Op, dst, a, b []byte) {
	d, x, y := view[T](dst), view[T](a), view[T](b)
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
		addParts(d, x, y, 0x8080808080808080)
	case sumOf16:
		addParts(d, x, y, 0x8000800080008000)
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
