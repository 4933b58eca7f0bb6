package plan

// StagedReduceScatter leaves chunk r of the reduction on rank r, moving
// (n-1)/n of a vector per rank in a single round. Unlike [DirectReduceScatter] it waits for
// all messages and then reduces in the canonical order. It is for shared memory, where
// received data stays in place; over links it would need n-1 vectors of scratch.
func StagedReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		p.round(copyTo(one(Data, 0), one(Input, 0)))
		return p
	}
	p.collect(Input, rank, size)
	p.combineStaged(one(Data, rank), one(Input, rank), rank, size)
	return p
}

// collect sends every other rank its chunk of a plan buffer, and receives their versions of this
// rank's chunk: that of rank i in Temp at staged(i).
func (p *Plan) collect(b Buf, rank, size int) {
	round := make(Round, 0, 2*(size-1))
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		round = append(round, send(one(b, to), to), recv(staged(rank, size, from), from))
	}
	p.round(round...)
}

// staged returns the location of rank i's version of this rank's chunk. It has the length of
// that chunk.
func staged(rank, size, i int) Span { return one(Temp, i*size+rank) }

// combineStaged sets dst to the sum of own, at the position of this rank, and of the staged
// chunks of all others, in canonical order.
func (p *Plan) combineStaged(dst, own Span, rank, size int) {
	at := make([]Span, size)
	for i := range at {
		at[i] = staged(rank, size, i)
	}
	at[rank] = own
	p.combineAll(dst, at, func(i int) Span { return staged(rank, size, size+i) })
}
