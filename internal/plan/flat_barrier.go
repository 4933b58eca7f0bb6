package plan

// FlatBarrier is a barrier of a single round in which every rank reports to all
// others: n-1 messages per rank, none of which waits for any other. It is for a
// few ranks, and for memory that ranks share, where all see the same report.
func FlatBarrier(rank, size int) Plan {
	p := Plan{Chunks: 1}
	var round Round
	for k := 1; k < size; k++ {
		round = append(round, send(one(Data, 0), mod(rank+k, size)), recv(one(Temp, k-1), mod(rank-k, size)))
	}
	p.round(round...)
	return p
}
