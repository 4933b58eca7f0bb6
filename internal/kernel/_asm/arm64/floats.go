package main

import "strings"

// The registers of a loop: four blocks of one vector in V0 to V3, four of the other in V4 to
// V7, and four temporaries for each block.
const (
	registersB = 4
	scratch    = 8

	nanRegister   = 28
	upperRegister = 29 // for bfloat16: mask of the high 16 bits of every word
	oneRegister   = 30 // for bfloat16: 1
	belowRegister = 31 // for bfloat16: half a unit minus 1
)

// instructions returns the instructions that reduce floating-point numbers. FMIN and FMAX order
// -0 before +0 and return NaN if either operand is NaN, as required.
func instructions() map[string]string {
	return map[string]string{
		"Sum": "fadd", "Prod": "fmul", "Min": "fmin", "Max": "fmax", "Scale": "fmul", "Divide": "fdiv",
	}
}

// rounds reports whether the result of an operation can differ from both operands.
func rounds(op string) bool { return op != "Min" && op != "Max" }

// float emits arithmetic on blocks of one type. Results are canonical: NaN is always the
// positive quiet NaN without payload.
type float struct {
	p     *program
	typ   string
	width int // of the numbers in computations
}

// floats loads the constants.
func (p *program) floats(typ string) float {
	f := float{p, typ, 32}
	if typ == "float64" {
		f.width = 64
		p.constant(nanRegister, 0x7ff8000000000000, 64)
		return f
	}
	p.constant(nanRegister, 0x7fc00000, 32)
	if typ == "bfloat16" {
		p.constant(upperRegister, 0xffff0000, 32)
		p.constant(oneRegister, 1, 32)
		p.constant(belowRegister, 0x7fff, 32)
	}
	return f
}

// block sets register x to x op y. It may use the four registers from t.
func (f float) block(op string, x, y, t int) {
	if !f.isHalf() {
		f.compute(op, x, x, y)
		return
	}
	f.widen(x, t)
	f.widen(y, t+2)
	f.compute(op, t, t, t+2)
	f.compute(op, t+1, t+1, t+3)
	f.narrow(op, x, t)
}

// scale is block with a scalar in all elements of y, of the width of computations.
func (f float) scale(op string, x, y, t int) {
	if !f.isHalf() {
		f.compute(op, x, x, y)
		return
	}
	f.widen(x, t)
	f.compute(op, t, t, y)
	f.compute(op, t+1, t+1, y)
	f.narrow(op, x, t)
}

// isHalf reports whether the numbers have 16 bits, and are computed with 32.
func (f float) isHalf() bool { return strings.HasSuffix(f.typ, "16") }

// compute emits d = x op y. Elements unequal to themselves are NaN and replaced.
func (f float) compute(op string, d, x, y int) {
	const equal = 27
	f.p.three(instructions()[op], f.width, d, x, y)
	f.p.three("fcmeq", f.width, equal, d, d)
	f.p.emit("VBIF V%d.B16, V%d.B16, V%d.B16", equal, nanRegister, d)
}

// widen converts the elements of v to t and t+1: the low and the high half of float16, or the even and the odd elements of
// bfloat16, in place, so that nothing crosses lanes.
func (f float) widen(v, t int) {
	if f.typ == "float16" {
		f.p.two("fcvtl", t, v)
		f.p.two("fcvtl2", t+1, v)
		return
	}
	f.p.emit("VSHL $16, V%d.S4, V%d.S4", v, t)
	f.p.emit("VAND V%d.B16, V%d.B16, V%d.B16", upperRegister, v, t+1)
}

// narrow is the inverse. It rounds a sum or product a second time. That is correct, since a float32 has more than twice the
// bits of a float16 (Figueroa, "When is double rounding innocuous?", ACM SIGNUM Newsletter 30(3), 1995). Results of Min and Max
// need no rounding.
func (f float) narrow(op string, v, t int) {
	if f.typ == "float16" {
		f.p.two("fcvtn", v, t)
		f.p.two("fcvtn2", v, t+1)
		return
	}
	if rounds(op) {
		f.roundBFloat16(t, t+2)
		f.roundBFloat16(t+1, t+2)
	}
	f.p.emit("VORR V%d.B16, V%d.B16, V%d.B16", t+1, t+1, v)
	f.p.emit("VSRI $16, V%d.S4, V%d.S4", t, v)
}

// roundBFloat16 rounds each word of v to its high 16 bits. Half a unit minus 1 does not carry
// on ties; one more carries if the last bit is set.
func (f float) roundBFloat16(v, t int) {
	f.p.emit("VUSHR $16, V%d.S4, V%d.S4", v, t)
	f.p.emit("VAND V%d.B16, V%d.B16, V%d.B16", oneRegister, t, t)
	f.p.emit("VADD V%d.S4, V%d.S4, V%d.S4", belowRegister, v, v)
	f.p.emit("VADD V%d.S4, V%d.S4, V%d.S4", t, v, v)
}
