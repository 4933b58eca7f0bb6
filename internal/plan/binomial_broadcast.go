package plan

import "slices"

// BinomialBroadcast leaves root's vector on every rank in ⌈log2 n⌉ rounds. A
// rank receives the vector once; root sends it ⌈log2 n⌉ times.
//
// Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication:
// theory, practice, and experience", CCPE 19(13), 2007 (minimum spanning tree
// broadcast).
func BinomialBroadcast(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	data := one(Data, 0)
	for _, m := range slices.Backward(merges(rank, size)) {
		switch near, far := m.roots(root); rank {
		case near:
			p.round(send(data, far))
		case far:
			p.round(recv(data, near))
		}
	}
	return p
}
