package plan

// FlatBarrier is a barrier of a single round: every rank sends to all others, n-1 independent
// messages per rank. It is for few ranks, and for shared memory, where one message reaches
// all.
func FlatBarrier(rank, size int) Plan {
	p := Plan{Chunks: 1}
	var round Round
	for k := 1; k < size; k++ {
		round = append(round, send(one(Data, 0), mod(rank+k, size)), recv(one(Temp, k-1), mod(rank-k, size)))
	}
	p.round(round...)
	return p
}
