package plan

// RingBarrier is a barrier of n-1 rounds: every rank sends one message to the next and receives one from the one before. It is
// for topologies without other links.
//
// It is [RingAllGather] without bytes.
func RingBarrier(size, _ int) Rounds {
	length := 0
	if size > 1 {
		length = size
	}
	return Rounds{Chunks: 1, length: sameLen(length), moves: func(to Round, rank, k int) Round {
		// Temp has a chunk for each known rank. Sending the last one waits until it has arrived.
		if k == 0 {
			return append(to, copyTo(one(Temp, 0), one(Data, 0)))
		}
		return append(to, send(one(Temp, k-1), mod(rank+1, size)), recv(one(Temp, k), mod(rank-1, size)))
	}}
}
