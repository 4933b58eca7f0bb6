package plan

// InPlace converts the plan of a rank for separate Input and Data to one for plan buffers that
// overlap, because one is a block of the other at its place:
//
//   - of a gather at root, or an all-gather, Input is chunk rank of Data;
//   - of a scatter at root, or a reduce-scatter, Data is chunk rank of Input.
//
// Its plan uses Data alone, which is all n chunks: in the second case only chunk rank is
// written, and holds the result. The messages are those of p, so other ranks may or may not do
// the same. [CheckInPlace] proves it correct.
func InPlace(p Plan) Plan {
	q := Plan{Chunks: p.Chunks, Temps: p.Temps}
	for _, round := range p.Rounds {
		var moves Round
		for _, m := range round {
			for _, s := range [...]*Span{&m.A, &m.B} {
				if s.Buf == Input {
					s.Buf = Data
				}
			}
			if m.Kind != Copy || m.Dst != m.A {
				moves = append(moves, m)
			}
		}
		if len(moves) > 0 {
			q.Rounds = append(q.Rounds, moves)
		}
	}
	return q
}

// CanBeInPlace reports whether InPlace supports a rank of a collective.
func CanBeInPlace(c Collective, rank, root int) bool {
	d := c.Descriptor()
	return d.Parts() && d.Given.At.Have(rank, root) && d.Taken.At.Have(rank, root)
}
