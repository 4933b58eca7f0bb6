package plan

import "slices"

// RabenseifnerAllReduce leaves the reduction of all vectors on every rank. If n is a power of
// two it moves 2(n-1)/n of a vector per rank, the minimum, in 2·log2 n rounds; otherwise three
// rounds more than for the next lower power of two, and for the ranks of a pair one and a half
// vectors more.
//
// It is canonical, so its results have the bits of RecursiveDoublingAllReduce.
//
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, and Thakur,
// Rabenseifner and Gropp, IJHPCA 19(1), 2005, §4.5, here with the distances doubling in the
// first phase, which keeps the order of the ranks.
func RabenseifnerAllReduce(rank, size int) Plan {
	h := halver{fold: foldOf(size), rank: rank, in: Data, acc: Data, bound: same}
	p := Plan{Chunks: h.members}

	for _, half := range slices.Backward(h.reduce(&p)) {
		peer := h.lead(h.member(rank) ^ half.bit)
		p.round(send(h.chunks(Data, half.keep), peer), recv(h.chunks(Data, half.give), peer))
	}
	if h.paired(rank) {
		all := span(Data, 0, p.Chunks)
		if h.lead(h.member(rank)) == rank {
			p.round(send(all, rank^1))
		} else {
			p.round(recv(all, rank^1))
		}
	}
	return p
}

func same(position int) int { return position }
