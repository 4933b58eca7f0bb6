package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

func writeConversions(g *generator) {
	g.conversion("widenFloat16", 2, 1, func() converter {
		return func(dst, src block) {
			v := g.vec()
			g.VCVTPH2PS(src.at, v)
			g.store(v, dst)
		}
	}, nil)
	g.conversion("widenBFloat16", 2, 1, func() converter {
		return func(dst, src block) {
			v := g.vec()
			g.VPMOVZXWD(src.at, v)
			g.VPSLLD(Imm(16), v, v)
			g.store(v, dst)
		}
	}, nil)
	g.conversion("roundFloat16", 1, 2, func() converter {
		return func(dst, src block) { g.VCVTPS2PH(Imm(nearestEven), g.load(src), dst.at) }
	}, nil)
	g.conversion("roundBFloat16", 1, 2, func() converter {
		h, quiet := g.bfloats(), g.constant32(0x00400000)
		return func(dst, src block) {
			v := g.load(src)
			nan := g.quietNaNs(v, quiet)
			h.round(v)
			g.narrow(nan(v), dst)
		}
	}, nil)
}

// A converter converts the block src to dst. One of the two may be half as long as the other.
type converter func(dst, src block)

// conversion writes a function that converts n bytes of float32, where n is a multiple of the
// width. Per block, src and dst advance by the shares. after emits the epilogue and may be nil.
func (g *generator) conversion(name string, srcShare, dstShare int, prepare func() converter, after func()) {
	g.set.Conversions = append(g.set.Conversions, stubs.Conversion{Name: name})
	g.function(name, "func(dst, src *byte, n int)")
	dst, src := g.pointer("dst", dstShare), g.pointer("src", srcShare)
	n := g.Load(g.Param("n"), g.GP64())
	convert := prepare()
	g.loop(n, 4, []pointer{dst, src}, func(blocks int, _ reg.Register) {
		for i := range blocks {
			convert(g.block(dst, i, nil), g.block(src, i, nil))
		}
	})
	if after != nil {
		after()
	}
	g.end(n, nil)
}

// quietNaNs finds the NaNs of v. restore puts quiet ones back in their places.
func (g *generator) quietNaNs(v, quiet vector) (restore func(rounded vector) vector) {
	if g.wide {
		mask, kept := g.K(), g.vec()
		g.VCMPPS(Imm(unordered), v, v, mask)
		g.VPORD(quiet, v, kept)
		return func(rounded vector) vector {
			g.VMOVDQA32(kept, mask, rounded)
			return rounded
		}
	}
	mask, kept := g.vec(), g.vec()
	g.VCMPPS(Imm(unordered), v, v, mask)
	g.VPOR(quiet, v, kept)
	return func(rounded vector) vector {
		g.VBLENDVPS(mask, kept, rounded, rounded)
		return rounded
	}
}

// narrow stores the high 16 bits of each word of v.
func (g *generator) narrow(v vector, dst block) {
	g.VPSRLD(Imm(16), v, v)
	if g.wide {
		g.VPMOVDW(v, dst.at)
		return
	}
	x := g.XMM()
	g.VEXTRACTI128(Imm(1), v, x)
	g.VPACKUSDW(x, v.AsX(), x)
	g.VMOVDQU(x, dst.at)
}
