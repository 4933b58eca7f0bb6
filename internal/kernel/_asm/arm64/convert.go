package main

import (
	"strings"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

func writeDivisions(p *program) {
	for _, op := range []string{"Scale", "Divide"} {
		for _, typ := range []string{"float32", "float64", "float16", "bfloat16"} {
			p.division(stubs.Division{Name: typ + op, By: by(typ)}, op, typ)
		}
	}
}

// by returns the type of the divisor for elements of a type.
func by(typ string) string {
	if strings.HasSuffix(typ, "16") {
		return "float32"
	}
	return typ
}

func (p *program) division(d stubs.Division, op, typ string) {
	p.set.Divisions = append(p.set.Divisions, d)
	bytes, load, lane, all := 20, "FMOVS", "S[0]", "S4"
	if d.By == "float64" {
		bytes, load, lane, all = 24, "FMOVD", "D[0]", "D2"
	}
	p.function(d.Name, bytes, "dst", "n")
	p.emit("%s by+16(FP), F%d", load, registersB)
	p.emit("VDUP V%d.%s, V%d.%s", registersB, lane, registersB, all)
	f := p.floats(typ)
	p.emit("MOVD R0, R2")
	p.loop("R1", 4, func(blocks int) {
		p.load("R0", 0, blocks)
		for i := range blocks {
			f.scale(op, i, registersB, scratch+4*i)
		}
		p.store("R2", 0, blocks)
	})
}

// writeConversions writes conversions of 16 numbers at a time: 64 bytes of float32 in V4 to V7,
// and 32 bytes of 16-bit floats in V0 and V1.
func writeConversions(p *program) {
	for _, c := range [][2]string{{"widenFloat16", "fcvtl"}, {"widenBFloat16", "shll"}} {
		p.conversion(c[0], nil, func() {
			p.load("R1", 0, 2)
			for i := range 2 {
				p.two(c[1], 4+2*i, i)
				p.two(c[1]+"2", 5+2*i, i)
			}
			p.store("R0", 4, 4)
		})
	}
	p.conversion("roundFloat16", nil, func() {
		p.load("R1", 4, 4)
		for i := range 2 {
			p.two("fcvtn", i, 4+2*i)
			p.two("fcvtn2", i, 5+2*i)
		}
		p.store("R0", 0, 2)
	})
	const quiet, equal, nan = 26, 16, 20
	p.conversion("roundBFloat16", func() { p.constant(quiet, 0x00400000, 32) }, func() {
		f := float{p, "bfloat16", 32}
		p.load("R1", 4, 4)
		for v := 4; v < 8; v++ {
			p.three("fcmeq", 32, equal, v, v)
			p.emit("VORR V%d.B16, V%d.B16, V%d.B16", quiet, v, nan)
			f.roundBFloat16(v, scratch)
			p.emit("VBIF V%d.B16, V%d.B16, V%d.B16", equal, nan, v)
		}
		for i := range 2 { // the high 16 bits of the words of two registers
			p.emit("VUZP2 V%d.H8, V%d.H8, V%d.H8", 5+2*i, 4+2*i, i)
		}
		p.store("R0", 0, 2)
	})
}

func (p *program) conversion(name string, prepare, body func()) {
	p.set.Conversions = append(p.set.Conversions, stubs.Conversion{Name: name})
	p.function(name, 24, "dst", "src", "n")
	p.floats("bfloat16")
	if prepare != nil {
		prepare()
	}
	p.label("many")
	p.emit("CBZ R2, done")
	body()
	p.emit("SUB $64, R2")
	p.emit("B many")
	p.label("done")
	p.emit("RET")
}
