package main

import "github.com/nexar-go/nexar/internal/kernel/_asm/stubs"

// writeWords writes bitwise operations, which are the same for integers of all widths.
func writeWords(g *generator) {
	types := []string{"Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64"}
	for _, w := range []struct {
		op    string
		apply func(x, y, d vector)
	}{{"BitAnd", g.and}, {"BitOr", g.or}, {"BitXor", g.xor}} {
		r := stubs.Reduction{Name: "words" + w.op, Types: types, Ops: []string{w.op}}
		g.reduction(r, 4, func() reducer {
			return func(dst, a, b block) {
				x, y := g.load(a), g.load(b)
				w.apply(x, y, x)
				g.store(x, dst)
			}
		})
	}
}
