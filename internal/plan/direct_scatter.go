package plan

// DirectScatter leaves chunk r of root's input on rank r, in one round: root sends every rank
// its chunk. Chunks are not forwarded, which suits long chunks; root sends n-1 messages, which
// does not suit many ranks.
func DirectScatter(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	own := one(Data, rank)
	if rank != root {
		p.round(recv(own, root))
		return p
	}
	round := Round{copyTo(own, one(Input, root))}
	for k := 1; k < size; k++ {
		to := mod(root+k, size)
		round = append(round, send(one(Input, to), to))
	}
	p.round(round...)
	return p
}
