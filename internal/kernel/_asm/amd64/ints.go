package main

import (
	"strings"

	. "github.com/mmcloughlin/avo/operand"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// lower returns the prefix of function names for a type.
func lower(typ string) string { return strings.ToLower(typ) }

func writeInts(g *generator) {
	for _, size := range []string{"8", "16", "32", "64"} {
		both := []string{"Int" + size, "Uint" + size}
		for _, ops := range [][]string{{"Sum", "Avg"}, {"Prod"}} {
			g.integers(stubs.Reduction{Name: "int" + size + ops[0], Types: both, Ops: ops})
		}
		for _, typ := range both {
			for _, op := range []string{"Min", "Max"} {
				g.integers(stubs.Reduction{Name: lower(typ) + op, Types: []string{typ}, Ops: []string{op}})
			}
		}
	}
}

// integers writes the reduction r of integers.
func (g *generator) integers(r stubs.Reduction) {
	g.reduction(r, 4, func() reducer {
		apply := g.integerOp(r.Name)
		return func(dst, a, b block) {
			x, y, d := g.load(a), g.load(b), g.vec()
			apply(x, y, d)
			g.store(d, dst)
		}
	})
}

// integerOp returns the emitter of a named operation, which may overwrite x and y.
func (g *generator) integerOp(name string) func(x, y, d vector) {
	if one := g.oneInstruction(name); one != nil {
		return func(x, y, d vector) { one(y, x, d) }
	}
	switch name {
	case "int8Prod":
		return g.productOfBytes()
	case "int64Prod":
		return g.productOf64
	case "int64Min", "int64Max":
		return func(x, y, d vector) { g.select64(name[5:], x, y, d, x, y) }
	case "uint64Min", "uint64Max":
		return g.unsigned64(name[6:])
	}
	panic("no kernel for " + name)
}

// oneInstruction returns the single instruction for an operation, or nil.
func (g *generator) oneInstruction(name string) func(...Op) {
	all := map[string]func(...Op){
		"int8Sum": g.VPADDB, "int16Sum": g.VPADDW, "int32Sum": g.VPADDD, "int64Sum": g.VPADDQ,
		"int16Prod": g.VPMULLW, "int32Prod": g.VPMULLD,
		"int8Min": g.VPMINSB, "int16Min": g.VPMINSW, "int32Min": g.VPMINSD,
		"int8Max": g.VPMAXSB, "int16Max": g.VPMAXSW, "int32Max": g.VPMAXSD,
		"uint8Min": g.VPMINUB, "uint16Min": g.VPMINUW, "uint32Min": g.VPMINUD,
		"uint8Max": g.VPMAXUB, "uint16Max": g.VPMAXUW, "uint32Max": g.VPMAXUD,
	}
	if g.wide {
		all["int64Prod"] = g.VPMULLQ
		all["int64Min"], all["int64Max"] = g.VPMINSQ, g.VPMAXSQ
		all["uint64Min"], all["uint64Max"] = g.VPMINUQ, g.VPMAXUQ
	}
	return all[name]
}

// productOfBytes multiplies the even and the odd bytes as words. The low bytes of the products
// are the result.
func (g *generator) productOfBytes() func(x, y, d vector) {
	lowBytes, highBytes := g.constant16(0x00ff), g.constant16(0xff00)
	return func(x, y, d vector) {
		g.VPMULLW(y, x, d)
		g.and(lowBytes, d, d)
		g.VPSRLW(Imm(8), x, x)
		g.and(highBytes, y, y)
		g.VPMULLW(y, x, x) // product in the high byte, since y was not shifted down
		g.or(x, d, d)
	}
}

// productOf64 adds the products of 32-bit parts. Of the cross products only the low 32 bits
// matter.
func (g *generator) productOf64(x, y, d vector) {
	swapped, t := g.vec(), g.vec()
	g.VPSHUFD(Imm(0xb1), y, swapped)
	g.VPMULLD(swapped, x, swapped)
	g.VPSRLQ(Imm(32), swapped, t)
	g.VPADDQ(t, swapped, t)
	g.VPSLLQ(Imm(32), t, t)
	g.VPMULUDQ(y, x, d)
	g.VPADDQ(t, d, d)
}

// select64 selects x or y by a comparison of two keys.
func (g *generator) select64(op string, x, y, d, keyX, keyY vector) {
	greater := g.vec()
	g.VPCMPGTQ(keyY, keyX, greater)
	if op == "Max" {
		x, y = y, x
	}
	g.VBLENDVPD(greater, y, x, d)
}

// unsigned64 compares as signed integers with flipped sign bits.
func (g *generator) unsigned64(op string) func(x, y, d vector) {
	top := g.constant64(1 << 63)
	return func(x, y, d vector) {
		keyX, keyY := g.vec(), g.vec()
		g.xor(top, x, keyX)
		g.xor(top, y, keyY)
		g.select64(op, x, y, d, keyX, keyY)
	}
}
