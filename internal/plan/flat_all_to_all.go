package plan

// FlatAllToAll gives every rank its chunk of every other in a single round of
// n-1 messages per rank. It is [PairwiseAllToAll] without an order of the partners, for
// shared memory.
func FlatAllToAll(rank, size int) Plan {
	p := Plan{Chunks: size}
	round := Round{copyTo(one(Data, rank), one(Input, rank))}
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		round = append(round, send(one(Input, to), to), recv(one(Data, from), from))
	}
	p.round(round...)
	return p
}
