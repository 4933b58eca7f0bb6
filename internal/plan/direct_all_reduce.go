package plan

import "slices"

// DirectAllReduce leaves the reduction of all vectors on every rank, moving 2(n-1)/n of a
// vector per rank, the minimum. Every rank sends each other its chunk and later the sum of its
// own. Messages of a phase are independent, so the latency is that of two messages, but each
// rank sends 2(n-1) of them.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.4 (pairwise exchange).
func DirectAllReduce(size, _ int) Rounds {
	return Rounds{Chunks: size, length: sameLen(size), moves: func(to Round, rank, k int) Round {
		sum := one(Data, rank)
		if k < size-1 {
			peer, from := mod(rank+k+1, size), mod(rank-k-1, size)
			return append(to, send(one(Data, peer), peer), reduce(sum, sum, from))
		}
		to = slices.Grow(to, 2*(size-1))
		for k := 1; k < size; k++ {
			peer, from := mod(rank+k, size), mod(rank-k, size)
			to = append(to, send(sum, peer), recv(one(Data, from), from))
		}
		return to
	}}
}
