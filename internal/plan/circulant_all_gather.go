package plan

import "slices"

// CirculantAllGather leaves the chunks of all ranks on every rank in ⌈log2 n⌉ rounds, moving
// (n-1)/n of the result per rank. Both are minimal for every n. It is recursive doubling for
// any number of ranks.
//
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications
// in multiport message-passing systems", IEEE TPDS 8(11), 1997, §4. Chunks arrive at their
// final positions, so that nothing is rotated at the end; the distances are those of
// CirculantAllReduce.
func CirculantAllGather(rank, size int) Plan {
	p := Plan{Chunks: size}
	own := copyTo(one(Data, rank), one(Input, rank))
	if size == 1 {
		p.round(own)
		return p
	}
	held := halvings(size)
	for k, n := range slices.Backward(held[1:]) {
		take, to, from := held[k]-n, mod(rank-n, size), mod(rank+n, size)
		received := recvArc(Data, arc{rank + n, take}, size, from)
		if n == 1 {
			p.round(append(received, own, send(one(Input, rank), to))...)
		} else {
			p.round(append(received, sendArc(Data, arc{rank, take}, size, to)...)...)
		}
	}
	return p
}
