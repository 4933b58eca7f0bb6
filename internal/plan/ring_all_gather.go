package plan

// RingAllGather leaves the chunks of all ranks on every rank, moving (n-1)/n
// of the result per rank in n-1 rounds, and only between neighbours.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19(1), 2005, §4.1.
func RingAllGather(rank, size int) Plan {
	p := Plan{Chunks: size}
	at := func(i int) Span { return one(Data, mod(i, size)) }
	next, prev := mod(rank+1, size), mod(rank-1, size)

	if size == 1 {
		p.round(copyTo(at(0), one(Input, 0)))
		return p
	}
	p.round(copyTo(at(rank), one(Input, rank)), send(one(Input, rank), next), recv(at(rank-1), prev))
	for k := 1; k < size-1; k++ {
		p.round(send(at(rank-k), next), recv(at(rank-k-1), prev))
	}
	return p
}
