package plan

// BinomialReduce leaves the reduction of all vectors on root in ⌈log2 n⌉ rounds. A rank sends
// one vector; root receives ⌈log2 n⌉.
//
// It is canonical: groups of neighbors are merged, and root acts for its group at any position
// in it, so the order of the ranks is kept without a detour over rank 0.
//
// Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice,
// and experience", CCPE 19(13), 2007 (minimum spanning tree reduce).
func BinomialReduce(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	sum, acc := one(Data, 0), one(Temp, 0)
	if rank == root {
		acc = one(Data, 0)
	}
	for _, m := range merges(rank, size) {
		switch near, far := m.roots(root); rank {
		case near:
			p.round(reduceInOrder(acc, sum, rank, far))
			sum = acc
		case far:
			p.round(send(sum, near))
		}
	}
	return p
}
