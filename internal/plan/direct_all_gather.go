package plan

// DirectAllGather leaves the chunks of all ranks on every rank in one round: each rank
// sends its chunk to all others, n-1 messages and (n-1)/n of the result per rank.
//
// It is the all-to-all broadcast of a fully connected network; see Chan,
// Heimlich, Purkayastha and van de Geijn, "Collective communication: theory,
// practice, and experience", CCPE 19(13), 2007.
func DirectAllGather(rank, size int) Plan {
	p := Plan{Chunks: size}
	own := one(Input, rank)
	round := Round{copyTo(one(Data, rank), own)}
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		round = append(round, send(own, to), recv(one(Data, from), from))
	}
	p.round(round...)
	return p
}
