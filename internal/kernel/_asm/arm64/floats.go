package main

// The registers of a loop. Four blocks of a vector are in V0 to V3, four of
// the other in V4 to V7, and each block has four more for what lies between.
const (
	registersB = 4
	scratch    = 8

	nanRegister   = 28
	upperRegister = 29 // for bfloat16: the upper half of every word
	oneRegister   = 30 // for bfloat16: 1
	belowRegister = 31 // for bfloat16: a little less than half a unit
)

// instructions are those that reduce floating-point numbers. FMIN and FMAX
// order -0 before +0 and are NaN if either operand is, as they should.
func instructions() map[string]string {
	return map[string]string{
		"Sum": "fadd", "Prod": "fmul", "Min": "fmin", "Max": "fmax", "Scale": "fmul", "Divide": "fdiv",
	}
}

// rounds reports whether the result of an operation need not be an operand.
func rounds(op string) bool { return op != "Min" && op != "Max" }

// float emits arithmetic on blocks of one type, with canonical results: NaN is
// always the positive quiet one without payload.
type float struct {
	p     *program
	typ   string
	width int // of the numbers that it computes with
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

// block sets register x to x op y. It may use the four registers from t on.
func (f float) block(op string, x, y, t int) {
	switch f.typ {
	case "float16":
		f.widenFloat16(x, t)
		f.widenFloat16(y, t+2)
		f.compute(op, t, t, t+2)
		f.compute(op, t+1, t+1, t+3)
		f.narrowFloat16(x, t)
	case "bfloat16":
		f.widenBFloat16(x, t)
		f.widenBFloat16(y, t+2)
		f.compute(op, t, t, t+2)
		f.compute(op, t+1, t+1, t+3)
		f.narrowBFloat16(op, x, t)
	default:
		f.compute(op, x, x, y)
	}
}

// scale is block with a number, in all elements of y, of the width that f
// computes with.
func (f float) scale(op string, x, y, t int) {
	switch f.typ {
	case "float16":
		f.widenFloat16(x, t)
		f.compute(op, t, t, y)
		f.compute(op, t+1, t+1, y)
		f.narrowFloat16(x, t)
	case "bfloat16":
		f.widenBFloat16(x, t)
		f.compute(op, t, t, y)
		f.compute(op, t+1, t+1, y)
		f.narrowBFloat16(op, x, t)
	default:
		f.compute(op, x, x, y)
	}
}

// compute is d = x op y. What is not equal to itself is replaced.
func (f float) compute(op string, d, x, y int) {
	const equal = 27
	f.p.three(instructions()[op], f.width, d, x, y)
	f.p.three("fcmeq", f.width, equal, d, d)
	f.p.emit("VBIF V%d.B16, V%d.B16, V%d.B16", equal, nanRegister, d)
}

// widenFloat16 makes t and t+1 of the lower and the upper half of v.
func (f float) widenFloat16(v, t int) {
	f.p.two("fcvtl", t, v)
	f.p.two("fcvtl2", t+1, v)
}

// narrowFloat16 rounds a sum or product twice and yet correctly, as a float32
// has more than twice the bits of a float16 (Figueroa, "When is double
// rounding innocuous?", ACM SIGNUM Newsletter 30(3), 1995).
func (f float) narrowFloat16(v, t int) {
	f.p.two("fcvtn", v, t)
	f.p.two("fcvtn2", v, t+1)
}

// widenBFloat16 makes t of the even and t+1 of the odd elements of v. Both
// stay in their place, so that nothing has to cross from lane to lane.
func (f float) widenBFloat16(v, t int) {
	f.p.emit("VSHL $16, V%d.S4, V%d.S4", v, t)
	f.p.emit("VAND V%d.B16, V%d.B16, V%d.B16", upperRegister, v, t+1)
}

// narrowBFloat16 is the inverse. A result of Min or Max needs no rounding.
func (f float) narrowBFloat16(op string, v, t int) {
	if rounds(op) {
		f.roundBFloat16(t, t+2)
		f.roundBFloat16(t+1, t+2)
	}
	f.p.emit("VORR V%d.B16, V%d.B16, V%d.B16", t+1, t+1, v)
	f.p.emit("VSRI $16, V%d.S4, V%d.S4", t, v)
}

// roundBFloat16 makes the upper half of every word of v right. A little less
// than half a unit leaves ties alone, and half a unit carries them up, if the
// last bit is set.
func (f float) roundBFloat16(v, t int) {
	f.p.emit("VUSHR $16, V%d.S4, V%d.S4", v, t)
	f.p.emit("VAND V%d.B16, V%d.B16, V%d.B16", oneRegister, t, t)
	f.p.emit("VADD V%d.S4, V%d.S4, V%d.S4", belowRegister, v, v)
	f.p.emit("VADD V%d.S4, V%d.S4, V%d.S4", t, v, v)
}
