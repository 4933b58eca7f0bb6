package kernel

func f16Sum(dst, a, b []byte)   { reduceHalves(Float16, Sum, dst, a, b) }
func f16Prod(dst, a, b []byte)  { reduceHalves(Float16, Prod, dst, a, b) }
func f16Min(dst, a, b []byte)   { reduceHalves(Float16, Min, dst, a, b) }
func f16Max(dst, a, b []byte)   { reduceHalves(Float16, Max, dst, a, b) }
func bf16Sum(dst, a, b []byte)  { reduceHalves(BFloat16, Sum, dst, a, b) }
func bf16Prod(dst, a, b []byte) { reduceHalves(BFloat16, Prod, dst, a, b) }
func bf16Min(dst, a, b []byte)  { reduceHalves(BFloat16, Min, dst, a, b) }
func bf16Max(dst, a, b []byte)  { reduceHalves(BFloat16, Max, dst, a, b) }

// halfBlock is the number of elements that are converted at a time. They stay in the
// first-level cache between the steps.
const halfBlock = 256

// reduceHalves converts to float32, reduces, and rounds to nearest even. Rounding a sum or a
// product twice is correct here: the 24 bits of a float32 are at least twice the 11 of a
// float16 or the 8 of a bfloat16, plus two (Figueroa, "When is double rounding innocuous?", ACM
// SIGNUM Newsletter 30(3), 1995).
func reduceHalves(t Type, op Op, dst, a, b []byte) {
	check(dst, a, b, 2)
	if direct(dst, a, b, 2) {
		loopHalves(t, op, view[uint16](dst), view[uint16](a), view[uint16](b))
		return
	}
	stageHalves(t, op, dst, a, b)
}

// stageHalves is reduceHalves for an alignment that the machine does not support.
func stageHalves(t Type, op Op, dst, a, b []byte) {
	var s stage
	for len(dst) > 0 {
		x, y := s.load(a, b)
		loopHalves(t, op, view[uint16](x), view[uint16](x), view[uint16](y))
		n := copy(dst, x)
		dst, a, b = dst[n:], a[n:], b[n:]
	}
}

func loopHalves(t Type, op Op, d, x, y []uint16) {
	var fx, fy [halfBlock]float32
	for len(d) > 0 {
		n := min(len(d), halfBlock)
		fx, fy := fx[:n], fy[:n]
		if t == Float16 {
			widenFloat16(fx, x[:n])
			widenFloat16(fy, y[:n])
			loopFloats(op, fx, fx, fy)
			roundFloat16(d[:n], fx)
		} else {
			widenBFloat16(fx, x[:n])
			widenBFloat16(fy, y[:n])
			loopFloats(op, fx, fx, fy)
			roundBFloat16(d[:n], fx)
		}
		d, x, y = d[n:], x[n:], y[n:]
	}
}
