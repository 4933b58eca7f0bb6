package plan

// PairwiseAllToAll gives every rank its chunk of every other: n-1 chunks per rank in n-1
// independent messages. Counts may differ from pair to pair.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19(1), 2005, §4.3 (pairwise exchange).
func PairwiseAllToAll(rank, size int) Plan {
	p := Plan{Chunks: size}
	p.round(copyTo(one(Data, rank), one(Input, rank)))
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		p.round(send(one(Input, to), to), recv(one(Data, from), from))
	}
	return p
}
