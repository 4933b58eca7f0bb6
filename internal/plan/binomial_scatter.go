package plan

import "slices"

// BinomialScatter leaves chunk r of root's input on rank r in ⌈log2 n⌉ rounds.
// Root sends each chunk once, in ⌈log2 n⌉ messages; on its way a chunk is
// forwarded up to ⌈log2 n⌉ times.
//
// Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication:
// theory, practice, and experience", CCPE 19(13), 2007 (minimum spanning tree
// scatter).
func BinomialScatter(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	held := Input
	for _, m := range slices.Backward(merges(rank, size)) {
		near, far := m.roots(root)
		lo, hi := m.group(far)
		switch rank {
		case near:
			p.round(send(span(held, lo, hi), far))
		case far:
			held = Temp
			if hi-lo == 1 {
				held = Data
			}
			p.round(recv(span(held, lo, hi), near))
		}
	}
	if held != Data {
		p.round(copyTo(one(Data, rank), one(held, rank)))
	}
	return p
}
