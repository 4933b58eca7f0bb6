package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// writeFolds writes folds for the operations that depend on the order of operands: sums and
// products of floating-point numbers.
func writeFolds(g *generator) {
	for _, ops := range floatOps()[:2] {
		for _, typ := range []string{"Float32", "Float64"} {
			g.foldFloats(fold(typ, ops), typ == "Float64")
		}
		for _, typ := range []string{"Float16", "BFloat16"} {
			g.set.Folds = append(g.set.Folds, fold(typ, ops))
		}
	}
}

// fold describes a fold. Numbers of 16 bits are rounded after every step, which takes so long
// that it does not pay to keep them in registers.
func fold(typ string, ops []string) stubs.Fold {
	r := stubs.Reduction{Name: lower(typ) + ops[0], Types: []string{typ}, Ops: ops}
	name := lower(typ) + "Fold" + ops[0]
	return stubs.Fold{Name: name, Reduction: r, InBlocks: strings.HasSuffix(typ, "16")}
}

// foldFloats writes a function that folds, and adds it to the set.
func (g *generator) foldFloats(fold stubs.Fold, double bool) {
	g.set.Folds = append(g.set.Folds, fold)
	g.function(fold.Name, "func(dst *byte, srcs *[]byte, k, n int)")
	dst := g.pointer("dst", 1)
	srcs := g.Load(g.Param("srcs"), g.GP64())
	k := g.Load(g.Param("k"), g.GP64())
	n := g.Load(g.Param("n"), g.GP64())
	done := pointer{g.GP64(), 1}
	g.XORQ(done, done)
	f := g.floats(double)
	loops := 0
	body := func(blocks int, mask reg.Register) {
		loops++
		at := func(base reg.Register, i int) block {
			return block{Mem{Base: base, Index: done, Scale: 1, Disp: i * g.width()}, mask}
		}
		acc := make([]vector, blocks)
		g.forEachSource(srcs, k, fmt.Sprintf("next%d", loops), func(src reg.Register) {
			for i := range acc {
				acc[i] = g.load(at(src, i))
			}
		}, func(src reg.Register) {
			for i, a := range acc {
				f.computeTo(fold.Ops[0], a, g.load(at(src, i)), a)
			}
		})
		// An operation on NaN returns NaN, so only the last result must be made canonical.
		for i, a := range acc {
			g.store(f.canonical(a), at(dst, i))
		}
	}
	g.loop(n, 4, []pointer{done}, body)
	g.end(n, body)
}

// sliceBytes is the size of a slice header, which begins with the pointer.
const sliceBytes = 24

// forEachSource iterates over the k slices with headers at srcs; k is at least 2.
func (g *generator) forEachSource(srcs, k reg.Register, label string, first, next func(src reg.Register)) {
	header, left, src := g.GP64(), g.GP64(), g.GP64()
	g.MOVQ(srcs, header)
	g.MOVQ(k, left)
	g.MOVQ(Mem{Base: header}, src)
	first(src)
	g.DECQ(left)
	g.Label(label)
	g.ADDQ(Imm(sliceBytes), header)
	g.MOVQ(Mem{Base: header}, src)
	next(src)
	g.DECQ(left)
	g.JNE(LabelRef(label))
}
