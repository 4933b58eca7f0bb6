package plan

// CirculantAllGather leaves the chunks of all ranks on every rank in ⌈log2 n⌉ rounds, moving
// (n-1)/n of the result per rank. Both are minimal for every n. It is recursive doubling for
// any number of ranks.
//
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications
// in multiport message-passing systems", IEEE TPDS 8(11), 1997, §4. Chunks arrive at their
// final positions, so that nothing is rotated at the end; the distances are those of
// CirculantAllReduce.
func CirculantAllGather(size, _ int) Rounds {
	held := halvings(size)
	steps := len(held) - 1
	return Rounds{Chunks: size, length: sameLen(max(steps, 1)), moves: func(to Round, rank, k int) Round {
		own := copyTo(one(Data, rank), one(Input, rank))
		if size == 1 {
			return append(to, own)
		}
		n := held[steps-k]
		take, peer, from := held[steps-1-k]-n, mod(rank-n, size), mod(rank+n, size)
		to = recvArc(to, Data, arc{rank + n, take}, size, from)
		if k == 0 {
			return append(to, own, send(one(Input, rank), peer))
		}
		return sendArc(to, Data, arc{rank, take}, size, peer)
	}}
}
