package plan

// DirectGather leaves the chunks of all ranks on root, in one round: every rank sends its chunk
// to root. Chunks are not forwarded, which suits long chunks; root receives n-1 messages, which
// does not suit many ranks.
func DirectGather(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	own := one(Input, rank)
	if rank != root {
		p.round(send(own, root))
		return p
	}
	round := Round{copyTo(one(Data, root), own)}
	for k := 1; k < size; k++ {
		from := mod(root+k, size)
		round = append(round, recv(one(Data, from), from))
	}
	p.round(round...)
	return p
}
