package plan

import "slices"

// ScatterRingBroadcast leaves root's vector on every rank: a binomial scatter
// of its chunks, then a ring all-gather, in which root only sends. Each rank
// sends less than two vectors, in ⌈log2 n⌉ + n - 1 rounds.
//
// Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, "Interprocessor
// collective communication library (InterCom)", SHPCC 1994; Thakur,
// Rabenseifner and Gropp, IJHPCA 19(1), 2005, §4.2.
func ScatterRingBroadcast(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	for _, m := range slices.Backward(merges(rank, size)) {
		near, far := m.roots(root)
		lo, hi := m.group(far)
		switch rank {
		case near:
			p.round(send(span(Data, lo, hi), far))
		case far:
			p.round(recv(span(Data, lo, hi), near))
		}
	}
	p.Rounds = append(p.Rounds, InPlace(sparing(roundwise(RingAllGather), root)(rank, size, 0)).Rounds...)
	return p
}
