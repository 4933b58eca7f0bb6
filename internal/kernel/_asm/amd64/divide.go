package main

import (
	"github.com/mmcloughlin/avo/reg"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

func writeDivisions(g *generator) {
	for _, verb := range []string{"Scale", "Divide"} {
		for _, typ := range []string{"float32", "float64"} {
			g.division(stubs.Division{Name: typ + verb, By: typ}, func(f *floats, by vector) divider {
				return func(dst block) { g.store(f.reduce(verb, g.load(dst), by), dst) }
			})
		}
		for _, typ := range []string{"Float16", "BFloat16"} {
			g.division(stubs.Division{Name: lower(typ) + verb, By: "float32"}, func(f *floats, by vector) divider {
				load, store := g.halves(typ)
				return func(dst block) { store(verb, f.reduceTwo(verb, load(dst), [2]vector{by, by}), dst) }
			})
		}
	}
}

// A divider divides one block.
type divider func(dst block)

// division writes a function that divides n bytes, or multiplies them by a reciprocal, and adds
// it to the set.
func (g *generator) division(d stubs.Division, prepare func(f *floats, by vector) divider) {
	g.set.Divisions = append(g.set.Divisions, d)
	g.function(d.Name, "func(dst *byte, n int, by "+d.By+")")
	dst := g.pointer("dst", 1)
	n := g.Load(g.Param("n"), g.GP64())
	param, err := g.Param("by").Resolve()
	if err != nil {
		panic(err)
	}
	f, by := g.floats(d.By == "float64"), g.vec()
	pick(f, g.VBROADCASTSS, g.VBROADCASTSD)(param.Addr, by)
	divide := prepare(f, by)
	body := func(blocks int, mask reg.Register) {
		for i := range blocks {
			divide(g.block(dst, i, mask))
		}
	}
	g.loop(n, 2, []pointer{dst}, body)
	g.end(n, body)
}
