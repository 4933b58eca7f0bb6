package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// writeHalves writes operations on numbers of 16 bits. They compute with
// float32 and round, which rounds a sum or a product twice and yet correctly:
// the 24 bits of a float32 are at least twice the 11 of a float16 or the 8 of a
// bfloat16 and two more (Figueroa, "When is double rounding innocuous?", ACM
// SIGNUM Newsletter 30(3), 1995). Min and max do not round at all.
func writeHalves(g *generator) {
	for _, ops := range floatOps() {
		r := stubs.Reduction{Name: "float16" + ops[0], Types: []string{"Float16"}, Ops: ops}
		g.reductionAhead(r, 2, true, func() reducer {
			f := g.floats(false)
			return func(dst, a, b block) { g.reduceFloat16(f, ops[0], dst, a, b) }
		})
	}
	for _, ops := range floatOps() {
		r := stubs.Reduction{Name: "bfloat16" + ops[0], Types: []string{"BFloat16"}, Ops: ops}
		g.reductionAhead(r, 2, true, func() reducer {
			f, h := g.floats(false), g.bfloats()
			return func(dst, a, b block) {
				d := f.reduceTwo(ops[0], h.widen(g.load(a)), h.widen(g.load(b)))
				if rounds(ops[0]) {
					h.round(d[:]...)
				}
				g.store(h.join(d), dst)
			}
		})
	}
}

func (g *generator) reduceFloat16(f *floats, op string, dst, a, b block) {
	g.storeFloat16(f.reduceTwo(op, g.widenFloat16(a), g.widenFloat16(b)), dst)
}

// storeFloat16 rounds the lower and the upper half of a block.
func (g *generator) storeFloat16(v [2]vector, dst block) {
	if dst.mask == nil {
		g.VCVTPS2PH(Imm(nearestEven), v[0], dst.at)
		g.VCVTPS2PH(Imm(nearestEven), v[1], dst.at.Offset(g.width()/2))
		return
	}
	l, h, joined := g.half(), g.half(), g.vec()
	g.VCVTPS2PH(Imm(nearestEven), v[0], l)
	g.VCVTPS2PH(Imm(nearestEven), v[1], h)
	g.VINSERTI64X4(Imm(1), h, l.AsZ(), joined)
	g.store(joined, dst)
}

// nearestEven rounds to nearest even, whatever the mode of the machine is.
const nearestEven = 0

// widenFloat16 is the lower and the upper half of a block as float32. NaNs
// become quiet, and subnormal numbers are exact in every mode of the machine.
func (g *generator) widenFloat16(b block) [2]vector {
	v := [2]vector{g.vec(), g.vec()}
	if b.mask == nil {
		g.VCVTPH2PS(b.at, v[0])
		g.VCVTPH2PS(b.at.Offset(g.width()/2), v[1])
		return v
	}
	both, upper := g.load(b), g.half()
	g.VEXTRACTI64X4(Imm(1), both, upper)
	g.VCVTPH2PS(both.AsY(), v[0])
	g.VCVTPH2PS(upper, v[1])
	return v
}

// bfloats emits conversions of bfloat16. The two in each word of 32 bits stay
// in their place: the even ones are below the odd ones, and nothing has to
// cross from lane to lane.
type bfloats struct {
	g     *generator
	upper vector // the upper half of every word

	// With AVX-512: half a unit, what is cut off, and all but that and the
	// unit.
	half, cut, toEven vector
	lower             reg.Register // the two lower bytes of every word

	// With AVX2: the unit, shifted down, and a little less than half of it.
	one, below vector
}

func (g *generator) bfloats() *bfloats {
	h := &bfloats{g: g, upper: g.constant32(0xffff0000)}
	if !g.wide {
		h.one, h.below = g.constant32(1), g.constant32(0x7fff)
		return h
	}
	h.half, h.cut = g.constant32(0x8000), g.constant32(0xffff)
	h.toEven = g.constant32(0xfffe0000)
	h.lower = g.K()
	bits := g.GP64()
	g.MOVQ(U64(0x3333333333333333), bits)
	g.KMOVQ(bits, h.lower)
	return h
}

// widen is the even and the odd elements of v as float32.
func (h *bfloats) widen(v vector) [2]vector {
	even, odd := h.g.vec(), h.g.vec()
	h.g.VPSLLD(Imm(16), v, even)
	h.g.and(h.upper, v, odd)
	return [2]vector{even, odd}
}

// round makes the upper half of every word right, which is a float32. What is
// in the lower half then has no meaning. The lower half of a NaN must be 0.
func (h *bfloats) round(words ...vector) {
	for _, x := range words {
		if h.g.wide {
			h.roundWide(x)
			continue
		}
		// A little less than half a unit leaves ties alone, and half a unit
		// carries them up, if the last bit is set.
		t := h.g.vec()
		h.g.VPSRLD(Imm(16), x, t)
		h.g.VPAND(h.one, t, t)
		h.g.VPADDD(h.below, x, x)
		h.g.VPADDD(t, x, x)
	}
}

// roundWide adds half a unit, which rounds ties up. Nothing is then left below
// the unit, and the even one of the two neighbours has no last bit.
func (h *bfloats) roundWide(x vector) {
	tied := h.g.K()
	h.g.VPADDD(h.half, x, x)
	h.g.VPTESTNMD(h.cut, x, tied)
	h.g.VPANDD(h.toEven, x, tied, x)
}

// join takes the upper halves of the even and the odd words.
func (h *bfloats) join(words [2]vector) vector {
	g, even, odd := h.g, words[0], words[1]
	if g.wide {
		// Shifts bytes down by two, but writes to the lower halves only.
		g.VPALIGNR(Imm(2), even, even, h.lower, odd)
		return odd
	}
	d := g.vec()
	g.VPSRLD(Imm(16), even, d)
	g.VPBLENDW(Imm(0xaa), odd, d, d)
	return d
}
