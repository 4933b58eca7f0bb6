package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// writeHalves writes operations on 16-bit floats. They compute with float32 and round again.
// Rounding a sum or product twice is correct here: the 24 bits of a float32 are at least twice
// the 11 of a float16 or the 8 of a bfloat16, plus two (Figueroa, "When is double rounding
// innocuous?", ACM SIGNUM Newsletter 30(3), 1995). Min and max do not round at all.
func writeHalves(g *generator) {
	for _, typ := range []string{"Float16", "BFloat16"} {
		for _, ops := range floatOps() {
			r := stubs.Reduction{Name: lower(typ) + ops[0], Types: []string{typ}, Ops: ops}
			g.reductionAhead(r, 2, true, func() reducer {
				f := g.floats(false)
				load, store := g.halves(typ)
				return func(dst, a, b block) { store(ops[0], f.reduceTwo(ops[0], load(a), load(b)), dst) }
			})
		}
	}
}

// halves returns the conversions of a block of 16-bit floats to two vectors of float32 and, for the result of an operation, back.
func (g *generator) halves(typ string) (load func(block) [2]vector, store func(op string, v [2]vector, dst block)) {
	if typ == "Float16" {
		return g.widenFloat16, func(_ string, v [2]vector, dst block) { g.storeFloat16(v, dst) }
	}
	h := g.bfloats()
	return func(b block) [2]vector { return h.widen(g.load(b)) }, func(op string, v [2]vector, dst block) {
		if rounds(op) {
			h.round(v[:]...)
		}
		g.store(h.join(v), dst)
	}
}

// storeFloat16 rounds both float32 vectors of a block and stores them.
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

// nearestEven selects rounding to nearest even, independent of MXCSR.
const nearestEven = 0

// widenFloat16 loads a block as two vectors of float32. NaNs become quiet. Subnormal numbers
// are exact, independent of MXCSR.
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

// bfloats emits conversions of bfloat16. A 32-bit word contains an even element in its low 16
// bits and an odd one in its high bits. They are widened in place, so that nothing crosses
// lanes.
type bfloats struct {
	g     *generator
	upper vector // mask of the high 16 bits of every word

	// With AVX-512: half a unit in the last place, the discarded bits, and the table for
	// With AVX-512: half a unit in the last place, a mask of the discarded bits, and a mask
	// that clears them and the last bit.
	half, cut, toEven vector
	lower             reg.Register // mask of the two low bytes of every word

	// With AVX2: the unit, shifted down, and half of it minus 1.
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

// widen returns the even and the odd elements of v as float32.
func (h *bfloats) widen(v vector) [2]vector {
	even, odd := h.g.vec(), h.g.vec()
	h.g.VPSLLD(Imm(16), v, even)
	h.g.and(h.upper, v, odd)
	return [2]vector{even, odd}
}

// round rounds float32 words to bfloat16 in their high 16 bits; the low bits are undefined. The
// low 16 bits of a NaN must be 0.
func (h *bfloats) round(words ...vector) {
	for _, x := range words {
		if h.g.wide {
			h.roundWide(x)
			continue
		}
		// Half a unit minus 1 does not carry on ties. One more carries if the last bit is set.
		t := h.g.vec()
		h.g.VPSRLD(Imm(16), x, t)
		h.g.VPAND(h.one, t, t)
		h.g.VPADDD(h.below, x, x)
		h.g.VPADDD(t, x, x)
	}
}

// roundWide adds half a unit, which rounds ties up. In a tie the remaining bits are then 0, and
// clearing the last bit selects the even neighbor.
func (h *bfloats) roundWide(x vector) {
	tied := h.g.K()
	h.g.VPADDD(h.half, x, x)
	h.g.VPTESTNMD(h.cut, x, tied)
	h.g.VPANDD(h.toEven, x, tied, x)
}

// join packs the high 16 bits of the even and the odd words.
func (h *bfloats) join(words [2]vector) vector {
	g, even, odd := h.g, words[0], words[1]
	if g.wide {
		// Shifts bytes down by two, into the low 16 bits of each word only.
		g.VPALIGNR(Imm(2), even, even, h.lower, odd)
		return odd
	}
	d := g.vec()
	g.VPSRLD(Imm(16), even, d)
	g.VPBLENDW(Imm(0xaa), odd, d, d)
	return d
}
