package plan

import "math/bits"

// DisseminationBarrier is a barrier of ⌈log2 n⌉ rounds. Every rank sends and receives one
// message per round.
//
// Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization",
// International Journal of Parallel Programming 17(1), 1988.
func DisseminationBarrier(size, _ int) Rounds {
	length := 0
	if size > 1 {
		length = 1 + bits.Len(uint(size-1))
	}
	return Rounds{Chunks: 1, length: sameLen(length), moves: func(to Round, rank, k int) Round {
		// Temp has a chunk without bytes for each known rank. Sending chunks waits until they
		// have arrived.
		if k == 0 {
			return append(to, copyTo(one(Temp, 0), one(Data, 0)))
		}
		d := 1 << (k - 1)
		return append(to,
			send(span(Temp, 0, d), mod(rank+d, size)),
			recv(span(Temp, d, 2*d), mod(rank-d, size)))
	}}
}
