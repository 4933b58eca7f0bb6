package plan

// DisseminationBarrier is a barrier of ⌈log2 n⌉ rounds. Every rank sends and receives one
// message per round.
//
// Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization",
// International Journal of Parallel Programming 17(1), 1988.
func DisseminationBarrier(rank, size int) Plan {
	p := Plan{Chunks: 1}
	if size == 1 {
		return p
	}
	// Temp has a chunk without bytes for each known rank. Sending chunks waits until they have
	// arrived.
	p.round(copyTo(one(Temp, 0), one(Data, 0)))
	for d := 1; d < size; d *= 2 {
		p.round(
			send(span(Temp, 0, d), mod(rank+d, size)),
			recv(span(Temp, d, 2*d), mod(rank-d, size)))
	}
	return p
}
