package plan

// DirectAllReduce leaves the reduction of all vectors on every rank, moving 2(n-1)/n of a
// vector per rank, the minimum. Every rank sends each other its chunk and later the sum of its
// own. Messages of a phase are independent, so the latency is that of two messages, but each
// rank sends 2(n-1) of them.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.4 (pairwise exchange).
func DirectAllReduce(rank, size int) Plan {
	p := Plan{Chunks: size}
	sum := one(Data, rank)

	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		p.round(send(one(Data, to), to), reduce(sum, sum, from))
	}
	var gather Round
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		gather = append(gather, send(sum, to), recv(one(Data, from), from))
	}
	p.round(gather...)
	return p
}
