package plan

// RingReduceScatter leaves chunk r of the reduction on rank r, moving (n-1)/n of a vector per
// rank in n-1 rounds, and only between neighbors.
//
// It is the first half of the ring all-reduce of Patarasuk and Yuan, shifted by one rank so
// that every sum ends on its rank.
func RingReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	at := func(b Buf, i int) Span { return one(b, mod(i, size)) }
	next, prev := mod(rank+1, size), mod(rank-1, size)

	if size == 1 {
		p.round(copyTo(one(Data, 0), one(Input, 0)))
		return p
	}
	sum := at(Input, rank-1)
	for k := range size - 1 {
		to := at(Temp, rank-k-2)
		if k == size-2 {
			to = one(Data, rank)
		}
		p.round(send(sum, next), reduceL(to, at(Input, rank-k-2), prev))
		sum = to
	}
	return p
}
