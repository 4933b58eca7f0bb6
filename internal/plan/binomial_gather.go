package plan

// BinomialGather leaves the chunks of all ranks on root in ⌈log2 n⌉ rounds.
// Root receives each chunk once, in ⌈log2 n⌉ messages; on its way a chunk is
// forwarded up to ⌈log2 n⌉ times.
//
// Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication:
// theory, practice, and experience", CCPE 19(13), 2007 (minimum spanning tree
// gather).
func BinomialGather(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	held, all := Input, Temp
	if rank == root {
		held, all = Data, Data
		p.round(copyTo(one(Data, root), one(Input, root)))
	}
	for _, m := range merges(rank, size) {
		near, far := m.roots(root)
		lo, hi := m.group(far)
		switch rank {
		case near:
			if held == Input {
				p.round(copyTo(one(Temp, rank), one(Input, rank)))
				held = Temp
			}
			p.round(recv(span(all, lo, hi), far))
		case far:
			p.round(send(span(held, lo, hi), near))
		}
	}
	return p
}
