package plan

// FlatAllReduce leaves the reduction of all vectors on every rank after a single message: each
// rank sends its vector to all others and computes the sum itself. It moves n-1 vectors per
// rank and needs n vectors of scratch, so it is for few ranks and short vectors.
//
// It is canonical.
func FlatAllReduce(rank, size int) Plan {
	p := Plan{Chunks: 1}
	at := func(i int) Span {
		if i == rank {
			return one(Data, 0)
		}
		return one(Temp, i)
	}
	exchange := make(Round, 0, 2*(size-1))
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		exchange = append(exchange, send(at(rank), to), recv(at(from), from))
	}
	p.round(exchange...)

	// The sum of a group replaces the vector of its lowest rank. From the last rank down, the
	// right side of a merge is always ready.
	for lo := size - 1; lo >= 0; lo-- {
		for _, m := range merges(lo, size) {
			switch {
			case m.lo == 0 && m.hi == size && lo == 0:
				p.round(combine(one(Data, 0), at(0), at(m.mid)))
			case m.lo == lo:
				p.round(combine(at(lo), at(lo), at(m.mid)))
			}
		}
	}
	return p
}
