package plan

import "slices"

// RabenseifnerReduce leaves the reduction of all vectors on root. If n is a
// power of two a rank sends less than one and a half vectors and receives less
// than two, in 2·log2 n rounds; otherwise there are two rounds more than for
// the next lower power of two, and for the ranks of a pair one vector more.
//
// It is canonical.
//
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004:
// recursive halving, then a binomial gather of the pieces.
func RabenseifnerReduce(rank, size, root int) Plan {
	h := halver{fold: foldOf(size), rank: rank, root: root, in: Data, acc: Temp, bound: same}
	if rank == root {
		h.acc = Data
	}
	p := Plan{Chunks: h.members}

	member := h.member(rank)
	apart := member ^ h.member(root)
	for _, half := range slices.Backward(h.reduce(&p)) {
		peer := h.lead(member ^ half.bit)
		if apart&half.bit != 0 {
			p.round(send(h.chunks(h.acc, half.keep), peer))
			return p
		}
		p.round(recv(h.chunks(h.acc, half.give), peer))
	}
	return p
}
