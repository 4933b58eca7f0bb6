package plan

// RingReduceScatter leaves chunk r of the reduction on rank r, moving (n-1)/n of a vector per
// rank in n-1 rounds, and only between neighbors.
//
// It is the first half of the ring all-reduce of Patarasuk and Yuan, shifted by one rank so
// that every sum ends on its rank.
func RingReduceScatter(size, _ int) Rounds {
	at := func(b Buf, i int) Span { return one(b, mod(i, size)) }
	return Rounds{Chunks: size, Alike: 1, length: sameLen(max(size-1, 1)), moves: func(to Round, rank, k int) Round {
		next, prev := mod(rank+1, size), mod(rank-1, size)
		if size == 1 {
			return append(to, copyTo(one(Data, 0), one(Input, 0)))
		}
		sum, dst := at(Temp, rank-k-1), at(Temp, rank-k-2)
		if k == 0 {
			sum = at(Input, rank-1)
		}
		if k == size-2 {
			dst = one(Data, rank)
		}
		return append(to, send(sum, next), reduceL(dst, at(Input, rank-k-2), prev))
	}}
}
