package main

import (
	"strings"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

func writeReductions(p *program) {
	for _, typ := range []string{"Float32", "Float64", "Float16", "BFloat16"} {
		for _, ops := range [][]string{{"Sum", "Avg"}, {"Prod"}, {"Min"}, {"Max"}} {
			name := strings.ToLower(typ) + ops[0]
			p.reduction(stubs.Reduction{Name: name, Types: []string{typ}, Ops: ops}, func() func(x, y, t int) {
				f := p.floats(strings.ToLower(typ))
				return func(x, y, t int) { f.block(ops[0], x, y, t) }
			})
		}
	}
	for width, size := range []string{"8", "16", "32", "64"} {
		p.integers(size, 8<<width)
	}
	types := []string{"Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64"}
	for _, w := range []struct{ op, instruction string }{{"BitAnd", "VAND"}, {"BitOr", "VORR"}, {"BitXor", "VEOR"}} {
		r := stubs.Reduction{Name: "words" + w.op, Types: types, Ops: []string{w.op}}
		p.reduction(r, func() func(x, y, t int) {
			return func(x, y, t int) { p.emit("%s V%d.B16, V%d.B16, V%d.B16", w.instruction, y, x, x) }
		})
	}
}

// integers writes the reductions of integers of one width. NEON has no 64-bit product.
func (p *program) integers(size string, width int) {
	both := []string{"Int" + size, "Uint" + size}
	one := func(name string, types, ops []string, instruction string) {
		p.reduction(stubs.Reduction{Name: name, Types: types, Ops: ops}, func() func(x, y, t int) {
			return func(x, y, t int) { p.three(instruction, width, x, x, y) }
		})
	}
	one("int"+size+"Sum", both, []string{"Sum", "Avg"}, "add")
	if width < 64 {
		one("int"+size+"Prod", both, []string{"Prod"}, "mul")
		one("int"+size+"Min", both[:1], []string{"Min"}, "smin")
		one("int"+size+"Max", both[:1], []string{"Max"}, "smax")
		one("uint"+size+"Min", both[1:], []string{"Min"}, "umin")
		one("uint"+size+"Max", both[1:], []string{"Max"}, "umax")
		return
	}
	for _, typ := range both {
		for _, op := range []string{"Min", "Max"} {
			r := stubs.Reduction{Name: strings.ToLower(typ) + op, Types: []string{typ}, Ops: []string{op}}
			p.reduction(r, func() func(x, y, t int) {
				return func(x, y, t int) { p.extreme64(typ, op, x, y, t) }
			})
		}
	}
}

// extreme64 compares and selects.
func (p *program) extreme64(typ, op string, x, y, t int) {
	greater, other := "cmgt", "VBIT" // a greater x is replaced by y
	if typ == "Uint64" {
		greater = "cmhi"
	}
	if op == "Max" {
		other = "VBIF"
	}
	p.three(greater, 64, t, x, y)
	p.emit("%s V%d.B16, V%d.B16, V%d.B16", other, t, y, x)
}

// reduction writes a function that reduces, and adds it to the set. prepare loads constants and
// returns a function that emits x = x op y, which may use four registers from t.
func (p *program) reduction(r stubs.Reduction, prepare func() func(x, y, t int)) {
	p.set.Reductions = append(p.set.Reductions, r)
	p.function(r.Name, 32, "dst", "a", "b", "n")
	reduce := prepare()
	p.loop("R3", 4, func(blocks int) {
		p.load("R1", 0, blocks)
		p.load("R2", registersB, blocks)
		for i := range blocks {
			reduce(i, registersB+i, scratch+4*i)
		}
		p.store("R0", 0, blocks)
	})
}
