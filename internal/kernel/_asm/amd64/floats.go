package main

import (
	. "github.com/mmcloughlin/avo/operand"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// floatOps returns the operations on floating-point numbers, as package kernel names them. Avg
// reduces like Sum.
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

// floats emits arithmetic on floating-point numbers of one width. Results are canonical: NaN is
// always the positive quiet NaN without payload.
type floats struct {
	g      *generator
	double bool
	nan    vector
	fixup  vector // with AVX-512: the response to each class of numbers
}

// floats loads the constants.
func (g *generator) floats(double bool) *floats {
	f := &floats{g: g, double: double}
	f.nan = f.constant(0x7fc00000, 0x7ff8000000000000)
	if g.wide {
		f.fixup = f.constant(nansOnly, nansOnly)
	}
	return f
}

// constant returns a vector with equal words.
func (f *floats) constant(single uint32, double uint64) vector {
	if f.double {
		return f.g.constant64(double)
	}
	return f.g.constant32(single)
}

// nansOnly is the table for VFIXUPIMM. Numbers of the classes 0 and 1, quiet and signaling
// NaNs, become the value of the destination (response 0). All others keep the value of the
// source (response 1).
const nansOnly = 0x11111100

// pick chooses the instruction by the width of the numbers.
func pick[F any](f *floats, single, double F) F {
	if f.double {
		return double
	}
	return single
}

// reduce computes x op y in a new register.
func (f *floats) reduce(op string, x, y vector) vector {
	switch {
	case rounds(op):
		return f.canonical(f.compute(op, x, y))
	case f.g.wide:
		return f.extremeWide(op, x, y)
	}
	return f.extreme(op, x, y)
}

// reduceTwo reduces two vectors. It can take less than twice as long as reduce.
func (f *floats) reduceTwo(op string, x, y [2]vector) [2]vector {
	if rounds(op) {
		return f.canonicalTwo([2]vector{f.compute(op, x[0], y[0]), f.compute(op, x[1], y[1])})
	}
	return [2]vector{f.reduce(op, x[0], y[0]), f.reduce(op, x[1], y[1])}
}

// rounds reports whether the result of an operation can differ from both operands.
func rounds(op string) bool { return op != "Min" && op != "Max" }

// compute emits the instruction of op. The result may be any NaN.
func (f *floats) compute(op string, x, y vector) vector {
	g, d := f.g, f.g.vec()
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
	return d
}

// canonical replaces NaNs.
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

// canonicalTwo replaces the NaNs of two vectors. With AVX2 the replacement takes longer than
// everything else, so it is skipped if neither vector contains a NaN.
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

// unordered is the predicate that holds if either operand is NaN.
const unordered = 3

// extremeWide uses VRANGE, which orders -0 before +0 but returns a number rather than NaN.
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

// extreme computes both orders, since MINPS and MAXPS return their second operand if both are
// zeros or one is NaN. The sign bits distinguish zeros; otherwise both results agree.
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
