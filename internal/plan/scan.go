package plan

import "math/bits"

// RecursiveDoublingScan leaves on every rank the reduction of the vectors of
// ranks 0 up to itself, in their order, in ⌈log2 n⌉ rounds of a whole vector each.
//
// Hillis and Steele, "Data parallel algorithms", CACM 29(12), 1986.
func RecursiveDoublingScan(rank, size int) Plan {
	p := Plan{Chunks: 1}
	p.prefix(rank, size, 0, one(Data, 0), 0)
	return p
}

// prefix turns sum, over the ranks from first on, into the sum over the ranks from first to
// this one, in Data. used is the number of stages already in use.
func (p *Plan) prefix(rank, size, first int, sum Span, used int) {
	steps := used + bits.Len(uint(rank-first))
	for d := 1; d < size-first; d *= 2 {
		var round Round
		reach := sum
		if rank+d < size {
			round = append(round, send(sum, rank+d))
		}
		if rank-d >= first {
			used++
			reach = stage(used, steps)
			round = append(round, reduceL(reach, sum, rank-d))
		}
		p.round(round...)
		sum = reach
	}
	if data := one(Data, 0); sum != data {
		p.round(copyTo(data, sum))
	}
}
