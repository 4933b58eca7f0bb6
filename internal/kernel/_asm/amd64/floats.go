package main

import (
	. "github.com/mmcloughlin/avo/operand"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// floatOps are the operations on floating-point numbers, as package kernel
// calls them. An average begins as a sum.
func floatOps() [][]string { return [][]string{{"Sum", "Avg"}, {"Prod"}, {"Min"}, {"Max"}} }

func writeFloats(g *generator) {
	for _, typ := range []string{"Float32", "Float64"} {
		for _, ops := range floatOps() {
			r := stubs.Reduction{Name: lower(typ) + ops[0], Types: []string{typ}, Ops: ops}
			g.reductionAhead(r, 4, true, func() reducer {
				f := g.floats(typ == "Float64")
				return func(dst, a, b block) {
					g.store(f.reduce(ops[0], g.load(a), g.load(b)), dst)
				}
			})
		}
	}
}

// floats emits arithmetic on floating-point numbers of one width, whose
// results are canonical: NaN is always the positive quiet one without payload.
type floats struct {
	g      *generator
	double bool
	nan    vector
	fixup  vector // with AVX-512: what to do with each class of numbers
}

// floats loads the constants.
func (g *generator) floats(double bool) *floats {
	f := &floats{g: g, double: double}
	if double {
		f.nan = g.constant64(0x7ff8000000000000)
	} else {
		f.nan = g.constant32(0x7fc00000)
	}
	if g.wide {
		f.fixup = g.constant32(nansOnly)
		if double {
			f.fixup = g.constant64(nansOnly)
		}
	}
	return f
}

// nansOnly is a table for VFIXUPIMM: the classes 0 and 1, the quiet and the
// signaling NaNs, become what the destination holds, which is response 0, and
// all others become the source, which is response 1.
const nansOnly = 0x11111100

// pick chooses the instruction by the width of the numbers.
func pick[F any](f *floats, single, double F) F {
	if f.double {
		return double
	}
	return single
}

// reduce is x op y in a new register.
func (f *floats) reduce(op string, x, y vector) vector {
	switch {
	case rounds(op):
		return f.canonical(f.compute(op, x, y))
	case f.g.wide:
		return f.extremeWide(op, x, y)
	}
	return f.extreme(op, x, y)
}

// reduceTwo is reduce for two vectors, which can take less than twice as long.
func (f *floats) reduceTwo(op string, x, y [2]vector) [2]vector {
	if rounds(op) {
		return f.canonicalTwo([2]vector{f.compute(op, x[0], y[0]), f.compute(op, x[1], y[1])})
	}
	return [2]vector{f.reduce(op, x[0], y[0]), f.reduce(op, x[1], y[1])}
}

// rounds reports whether the result of an operation need not be an operand.
func rounds(op string) bool { return op != "Min" && op != "Max" }

// compute is what the processor makes of x op y.
func (f *floats) compute(op string, x, y vector) vector {
	d := f.g.vec()
	f.computeTo(op, x, y, d)
	return d
}

// computeTo is compute in a register that may be x or y.
func (f *floats) computeTo(op string, x, y, d vector) {
	g := f.g
	switch op {
	case "Sum":
		pick(f, g.VADDPS, g.VADDPD)(y, x, d)
	case "Prod", "Scale":
		pick(f, g.VMULPS, g.VMULPD)(y, x, d)
	case "Divide":
		pick(f, g.VDIVPS, g.VDIVPD)(y, x, d)
	default:
		panic("no instruction for " + op)
	}
}

// canonical replaces what is not a number.
func (f *floats) canonical(x vector) vector {
	g, d := f.g, f.g.vec()
	if g.wide {
		g.VMOVAPS(f.nan, d)
		pick(f, g.VFIXUPIMMPS, g.VFIXUPIMMPD)(Imm(0), f.fixup, x, d)
		return d
	}
	mask := g.vec()
	pick(f, g.VCMPPS, g.VCMPPD)(Imm(unordered), x, x, mask)
	pick(f, g.VBLENDVPS, g.VBLENDVPD)(mask, f.nan, x, d)
	return d
}

// canonicalTwo is canonical for two vectors. Replacing takes AVX2 longer than
// all else, so it looks first, at both at once.
func (f *floats) canonicalTwo(x [2]vector) [2]vector {
	g := f.g
	if g.wide {
		return [2]vector{f.canonical(x[0]), f.canonical(x[1])}
	}
	mask, any := g.vec(), g.GP32()
	pick(f, g.VCMPPS, g.VCMPPD)(Imm(unordered), x[0], x[1], mask)
	g.VMOVMSKPS(mask, any)
	g.TESTL(any, any)
	g.ifNotZero(func() {
		for _, v := range x {
			pick(f, g.VCMPPS, g.VCMPPD)(Imm(unordered), v, v, mask)
			pick(f, g.VBLENDVPS, g.VBLENDVPD)(mask, f.nan, v, v)
		}
	})
	return x
}

// unordered is the comparison that holds if either operand is NaN.
const unordered = 3

// extremeWide uses VRANGE, which orders -0 before +0 but prefers a number to
// NaN.
func (f *floats) extremeWide(op string, x, y vector) vector {
	const minOfSigned, maxOfSigned = 4, 5
	g, d, mask, choice := f.g, f.g.vec(), f.g.K(), minOfSigned
	if op == "Max" {
		choice = maxOfSigned
	}
	pick(f, g.VRANGEPS, g.VRANGEPD)(Imm(uint64(choice)), y, x, d)
	pick(f, g.VCMPPS, g.VCMPPD)(Imm(unordered), y, x, mask)
	pick(f, g.VMOVAPS, g.VMOVAPD)(f.nan, mask, d)
	return d
}

// extreme asks in both orders, as MINPS and MAXPS return their second operand
// if the two are zeros, or if one is NaN. Two zeros are then told apart by
// their sign bits, and elsewhere the answers agree.
func (f *floats) extreme(op string, x, y vector) vector {
	g, d, e, mask := f.g, f.g.vec(), f.g.vec(), f.g.vec()
	if op == "Min" {
		pick(f, g.VMINPS, g.VMINPD)(y, x, d)
		pick(f, g.VMINPS, g.VMINPD)(x, y, e)
		g.VORPS(d, e, d)
	} else {
		pick(f, g.VMAXPS, g.VMAXPD)(y, x, d)
		pick(f, g.VMAXPS, g.VMAXPD)(x, y, e)
		g.VANDPS(d, e, d)
	}
	pick(f, g.VCMPPS, g.VCMPPD)(Imm(unordered), x, y, mask)
	pick(f, g.VBLENDVPS, g.VBLENDVPD)(mask, f.nan, d, d)
	return d
}
