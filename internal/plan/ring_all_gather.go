package plan

// RingAllGather leaves the chunks of all ranks on every rank, moving (n-1)/n
// of the result per rank in n-1 rounds, and only between neighbors.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19(1), 2005, §4.1.
func RingAllGather(size, _ int) Rounds {
	at := func(i int) Span { return one(Data, mod(i, size)) }
	return Rounds{Chunks: size, Alike: 1, length: sameLen(max(size-1, 1)), moves: func(to Round, rank, k int) Round {
		next, prev := mod(rank+1, size), mod(rank-1, size)
		if k > 0 {
			return append(to, send(at(rank-k), next), recv(at(rank-k-1), prev))
		}
		to = append(to, copyTo(at(rank), one(Input, rank)))
		if size > 1 {
			to = append(to, send(one(Input, rank), next), recv(at(rank-1), prev))
		}
		return to
	}}
}
