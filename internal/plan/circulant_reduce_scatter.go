package plan

import "slices"

// CirculantReduceScatter leaves chunk r of the reduction on rank r in ⌈log2 n⌉ rounds, moving
// (n-1)/n of a vector per rank. Both are minimal for every n. It is recursive halving for any
// number of ranks.
//
// Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234,
// 2024.
func CirculantReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		p.round(copyTo(one(Data, 0), one(Input, 0)))
		return p
	}
	held := halvings(size)
	in := Input
	for k, n := range held[1:] {
		give, to, from := held[k]-n, mod(rank+n, size), mod(rank-n, size)
		sum := Temp
		if n == 1 {
			sum = Data
		}
		moves := slices.Concat(
			sendArc(in, arc{rank + n, give}, size, to),
			reduceArc(sum, in, arc{rank, give}, size, from))
		// Of an odd number of chunks the middle one has no partner yet. It is copied to the
		// sums in Temp.
		if in == Input && give < n {
			middle := mod(rank+n-1, size)
			moves = append(moves, copyTo(one(Temp, middle), one(Input, middle)))
		}
		p.round(moves...)
		in = Temp
	}
	return p
}
