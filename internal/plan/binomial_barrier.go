package plan

import "slices"

// BinomialBarrier is a barrier of 2·⌈log2 n⌉ rounds: reports travel up a binomial tree to rank 0, which
// releases all ranks down the same tree. It takes 2(n-1) messages in total, the minimum, and no rank handles
// more than 2·⌈log2 n⌉ of them. So it is for many ranks that share processors.
//
// Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
// multiprocessors", ACM TOCS 9(1), 1991 (tree barrier).
func BinomialBarrier(rank, size int) Plan {
	p := Plan{Chunks: 1}
	if size == 1 {
		return p
	}
	// Temp has a chunk without bytes for each rank of the subtree, beginning with this rank. Sending chunks waits
	// until they have arrived.
	p.round(copyTo(one(Temp, 0), one(Data, 0)))
	ms := merges(rank, size)
	for _, m := range ms {
		switch rank {
		case m.lo:
			p.round(recv(span(Temp, m.mid-m.lo, m.hi-m.lo), m.mid))
		case m.mid:
			p.round(send(span(Temp, 0, m.hi-m.mid), m.lo))
		}
	}
	reports := span(Temp, 0, size)
	for _, m := range slices.Backward(ms) {
		switch rank {
		case m.lo:
			p.round(send(reports, m.mid))
		case m.mid:
			p.round(recv(reports, m.lo))
		}
	}
	return p
}
