package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// A generator writes the kernels of one set. Its methods emit instructions that differ between
// sets; the others are emitted directly through avo.
type generator struct {
	*build.Context
	set    *stubs.Set
	wide   bool // AVX-512 rather than AVX2
	seldom []func()
}

type vector = reg.VecVirtual

// vec allocates a register of the full width of the set.
func (g *generator) vec() vector {
	if g.wide {
		return g.ZMM()
	}
	return g.YMM()
}

// half allocates a register of half the width.
func (g *generator) half() vector {
	if g.wide {
		return g.YMM()
	}
	return g.XMM()
}

// width returns the size of a vec in bytes.
func (g *generator) width() int {
	if g.wide {
		return 64
	}
	return 32
}

// function begins a function of the set.
func (g *generator) function(name, signature string) {
	g.Function(name + g.set.Suffix)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(signature)
}

// A block is one vector in memory. A partial block has a mask of its bytes.
type block struct {
	at   Mem
	mask reg.Register // or nil
}

// load loads the block into a new register. Bytes outside the mask are 0.
func (g *generator) load(b block) vector {
	v := g.vec()
	switch {
	case b.mask != nil:
		g.VMOVDQU8_Z(b.at, b.mask, v)
	case g.wide:
		g.VMOVDQU64(b.at, v)
	default:
		g.VMOVDQU(b.at, v)
	}
	return v
}

func (g *generator) store(v vector, b block) {
	switch {
	case b.mask != nil:
		g.VMOVDQU8(v, b.mask, b.at)
	case g.wide:
		g.VMOVDQU64(v, b.at)
	default:
		g.VMOVDQU(v, b.at)
	}
}

// A pointer advances by a share of the bytes that a loop has processed.
type pointer struct {
	reg.Register
	share int // 1: all bytes, 2: half of them
}

// block returns the i-th block after p.
func (g *generator) block(p pointer, i int, mask reg.Register) block {
	return block{Mem{Base: p, Disp: i * g.width() / p.share}, mask}
}

// pointer loads a parameter.
func (g *generator) pointer(param string, share int) pointer {
	return pointer{g.Load(g.Param(param), g.GP64()), share}
}

// A reducer emits dst = a op b for one block.
type reducer func(dst, a, b block)

// reduction writes a function that reduces, and adds it to the set. prepare loads constants and
// returns the reducer of a block.
func (g *generator) reduction(r stubs.Reduction, unroll int, prepare func() reducer) {
	g.reductionAhead(r, unroll, false, prepare)
}

// aheadBytes is the distance of prefetches.
const aheadBytes = 2048

// reductionAhead is reduction with an optional loop that prefetches. The processor prefetches
// by itself, but less the more it computes: with 16-bit numbers, explicit prefetches make the
// second-level cache 50 % faster and memory a third. Where there is little to compute, the
// first-level cache loses a tenth.
func (g *generator) reductionAhead(r stubs.Reduction, unroll int, ahead bool, prepare func() reducer) {
	g.set.Reductions = append(g.set.Reductions, r)
	g.function(r.Name, "func(dst, a, b *byte, n int)")
	dst, a, b := g.pointer("dst", 1), g.pointer("a", 1), g.pointer("b", 1)
	n := g.Load(g.Param("n"), g.GP64())
	reduce := prepare()
	body := func(blocks int, mask reg.Register) {
		if ahead && blocks > 1 {
			g.prefetch(blocks, func(i int) Mem { return g.block(a, i, nil).at })
			g.prefetch(blocks, func(i int) Mem { return g.block(b, i, nil).at })
		}
		for i := range blocks {
			reduce(g.block(dst, i, mask), g.block(a, i, mask), g.block(b, i, mask))
		}
	}
	g.loop(n, unroll, []pointer{dst, a, b}, body)
	g.end(n, body)
}

// prefetch fetches the cache lines ahead of the blocks.
func (g *generator) prefetch(blocks int, at func(i int) Mem) {
	const lineBytes = 64
	for i := 0; i < blocks; i += lineBytes / g.width() {
		g.PREFETCHT0(at(i).Offset(aheadBytes))
	}
}

// A body emits one iteration of a loop over the given number of blocks, which are partial if
// mask is not nil.
type body func(blocks int, mask reg.Register)

// loop repeats body and advances the pointers until less than a block of n bytes is left.
func (g *generator) loop(n reg.Register, unroll int, pointers []pointer, body body) {
	step := func(label, next string, times int) {
		g.Label(label)
		g.CMPQ(n, U32(times*g.width()))
		g.JLT(LabelRef(next))
		body(times, nil)
		for _, p := range pointers {
			g.ADDQ(U32(times*g.width()/p.share), p)
		}
		g.SUBQ(U32(times*g.width()), n)
		g.JMP(LabelRef(label))
	}
	step("many", "one", unroll)
	step("one", "rest", 1)
	g.Label("rest")
}

// end ends the function. With AVX-512 it first emits body for the remaining n bytes.
func (g *generator) end(n reg.Register, body body) {
	if g.wide && body != nil {
		g.TESTQ(n, n)
		g.JEQ(LabelRef("done"))
		body(1, g.maskOf(n))
		g.Label("done")
	}
	g.VZEROUPPER()
	g.RET()
	for _, emit := range g.seldom {
		emit()
	}
	g.seldom = nil
}

// ifNotZero emits a branch, taken if the last test was not zero, to the code of emit and back.
// The code is unlikely, and placed after the end of the function.
func (g *generator) ifNotZero(emit func()) {
	there, back := fmt.Sprintf("seldom%d", len(g.seldom)), fmt.Sprintf("often%d", len(g.seldom))
	g.JNE(LabelRef(there))
	g.Label(back)
	g.seldom = append(g.seldom, func() {
		g.Label(there)
		emit()
		g.JMP(LabelRef(back))
	})
}

// maskOf returns a mask of the first n bytes.
func (g *generator) maskOf(n reg.Register) reg.Register {
	bits, mask := g.GP64(), g.K()
	g.MOVQ(I64(-1), bits)
	g.BZHIQ(n, bits, bits)
	g.KMOVQ(bits, mask)
	return mask
}

// constant32 returns a vector with equal 32-bit words.
func (g *generator) constant32(bits uint32) vector {
	r, x, v := g.GP32(), g.XMM(), g.vec()
	g.MOVL(U32(bits), r)
	g.VMOVD(r, x)
	g.VPBROADCASTD(x, v)
	return v
}

// constant64 returns a vector with equal 64-bit words.
func (g *generator) constant64(bits uint64) vector {
	r, x, v := g.GP64(), g.XMM(), g.vec()
	g.MOVQ(U64(bits), r)
	g.VMOVQ(r, x)
	g.VPBROADCASTQ(x, v)
	return v
}

// constant16 returns a vector with equal 16-bit words.
func (g *generator) constant16(bits uint16) vector {
	return g.constant32(uint32(bits)<<16 | uint32(bits))
}

// and, or and xor set d, which may be one of the operands.

func (g *generator) and(x, y, d vector) { g.bitwise(g.VPAND, g.VPANDD, x, y, d) }

func (g *generator) or(x, y, d vector) { g.bitwise(g.VPOR, g.VPORD, x, y, d) }

func (g *generator) xor(x, y, d vector) { g.bitwise(g.VPXOR, g.VPXORD, x, y, d) }

func (g *generator) bitwise(avx2 func(x, y, d Op), avx512 func(...Op), x, y, d vector) {
	if g.wide {
		avx512(x, y, d)
	} else {
		avx2(x, y, d)
	}
}
