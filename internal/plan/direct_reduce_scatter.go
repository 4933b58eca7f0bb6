package plan

// DirectReduceScatter leaves chunk r of the reduction on rank r, moving (n-1)/n of a vector per
// rank. Every rank sends each other its chunk in an independent message.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.4 (pairwise exchange).
func DirectReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		p.round(copyTo(one(Data, 0), one(Input, 0)))
		return p
	}
	sum := one(Input, rank)
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		p.round(send(one(Input, to), to), reduce(one(Data, rank), sum, from))
		sum = one(Data, rank)
	}
	return p
}
