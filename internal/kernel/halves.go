package kernel

// halfBlock is the number of elements that are converted at a time. They stay in the
// first-level cache between the steps.
const halfBlock = 256

// loopHalves converts to float32, reduces, and rounds to nearest even. Rounding a sum or a
// product twice is correct here: the 24 bits of a float32 are at least twice the 11 of a
// float16 or the 8 of a bfloat16, plus two (Figueroa, "When is double rounding innocuous?", ACM
// SIGNUM Newsletter 30(3), 1995).
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
