package kernel

// Fold returns the function that reduces any number of vectors to dst, from
// the first to the last: dst = ((srcs[0] op srcs[1]) op srcs[2]) op …, bit-identical to
// repeated calls of a [Reducer]. For sums and products of float32 and float64 intermediate
// results stay in registers, and four vectors take little more than half the time. The
// result of one vector is the vector. Fold returns nil if Reducer does.
//
// The slices have the same length; dst may be one of srcs. The function panics without
// vectors, and if dst is two of them. Fold may allocate, the function does not.
func Fold(t Type, op Op) func(dst []byte, srcs [][]byte) {
	reduce := Reducer(t, op)
	if reduce == nil {
		return nil
	}
	if part, ok := partOf(t); ok && op != Prod {
		return Fold(part, Sum)
	}
	if t <= BFloat16 {
		if f := vectorFolder(t, op); f != nil {
			return f
		}
	}
	if f := inGo().folders[t][op]; f != nil {
		return f
	}
	return func(dst []byte, srcs [][]byte) {
		if checkFold(dst, srcs, t.Size()) {
			foldAnyOrder(reduce, dst, srcs)
		}
	}
}

// checkFold panics unless the slices can be folded. It copies a single operand itself, and
// reports whether there is more to reduce.
func checkFold(dst []byte, srcs [][]byte, size int) bool {
	if len(srcs) == 0 {
		panic("kernel: fold of no vectors")
	}
	same := 0
	for _, src := range srcs {
		check(dst, src, src, size)
		if len(dst) > 0 && address(src) == address(dst) {
			same++
		}
	}
	if same > 1 {
		panic("kernel: fold to a vector that is two of the operands")
	}
	if len(srcs) == 1 {
		copy(dst, srcs[0])
		return false
	}
	return true
}

// foldInOrder keeps the result in a stage until it is complete, since dst may be a later
// operand.
func foldInOrder(t Type, op Op, dst []byte, srcs [][]byte) {
	if !checkFold(dst, srcs, t.Size()) {
		return
	}
	var s stage
	for from := 0; from < len(dst); from += stageBytes {
		to := min(from+stageBytes, len(dst))
		acc, x := s.load(srcs[0][from:to], nil)
		for _, src := range srcs[1:] {
			copy(x, src[from:to])
			loop(t, op, acc, acc, x)
		}
		copy(dst[from:to], acc)
	}
}

// foldBytes is the length of the part of all vectors that is folded at a time. It fits in the
// first-level cache.
const foldBytes = 8 << 10

// foldAnyOrder is for associative operations. It begins with dst if dst is an operand.
func foldAnyOrder(reduce func(dst, a, b []byte), dst []byte, srcs [][]byte) {
	first := 0
	for i, src := range srcs {
		if address(src) == address(dst) {
			first = i
		}
	}
	for from := 0; from < len(dst); from += foldBytes {
		to := min(from+foldBytes, len(dst))
		d, acc := dst[from:to], srcs[first][from:to]
		for i, src := range srcs {
			if i != first {
				reduce(d, acc, src[from:to])
				acc = d
			}
		}
	}
}
