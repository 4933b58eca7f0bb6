package plan

// CirculantReduceScatter leaves chunk r of the reduction on rank r in ⌈log2 n⌉ rounds, moving
// (n-1)/n of a vector per rank. Both are minimal for every n. It is recursive halving for any
// number of ranks.
//
// Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234,
// 2024.
func CirculantReduceScatter(size, _ int) Rounds {
	held := halvings(size)
	steps := len(held) - 1
	return Rounds{Chunks: size, length: sameLen(max(steps, 1)), moves: func(to Round, rank, k int) Round {
		if size == 1 {
			return append(to, copyTo(one(Data, 0), one(Input, 0)))
		}
		n := held[k+1]
		give, in, sum := held[k]-n, Temp, Temp
		if k == 0 {
			in = Input
		}
		if n == 1 {
			sum = Data
		}
		to = sendArc(to, in, arc{rank + n, give}, size, mod(rank+n, size))
		to = reduceArc(to, sum, in, arc{rank, give}, size, mod(rank-n, size))
		// Of an odd number of chunks the middle one has no partner yet. It is copied to the
		// sums in Temp.
		if in == Input && give < n {
			middle := mod(rank+n-1, size)
			to = append(to, copyTo(one(Temp, middle), one(Input, middle)))
		}
		return to
	}}
}
