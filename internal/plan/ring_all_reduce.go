package plan

// RingAllReduce leaves the reduction of all vectors on every rank, moving 2(n-1)/n of a vector
// per rank, the minimum, in 2(n-1) rounds.
//
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// JPDC 69(2), 2009.
func RingAllReduce(size, _ int) Rounds {
	at := func(i int) Span { return one(Data, mod(i, size)) }
	return Rounds{Chunks: size, Alike: 2, length: sameLen(2 * (size - 1)), moves: func(to Round, rank, k int) Round {
		next, prev := mod(rank+1, size), mod(rank-1, size)
		// Reduce-scatter: forward the partial sum of the previous round. Afterwards rank r holds
		// the whole sum of chunk r+1.
		if k < size-1 {
			sum := at(rank - k - 1)
			return append(to, send(at(rank-k), next), reduceL(sum, sum, prev))
		}
		// All-gather: forward the whole sum received in the previous round.
		k -= size - 1
		return append(to, send(at(rank-k+1), next), recv(at(rank-k), prev))
	}}
}
