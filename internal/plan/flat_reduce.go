package plan

// FlatReduce leaves the reduction of all vectors on root. Every rank sends its vector to root,
// which keeps all until it has the last, and then reduces them. It is for shared memory, where
// received vectors stay in place; over links it would need n-1 vectors of scratch.
//
// It is canonical.
func FlatReduce(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	switch {
	case size == 1:
	case rank == root:
		p.reduceAll(rank, size)
	default:
		p.round(send(one(Data, 0), root))
	}
	return p
}

// reduceAll receives the vectors of all others, and leaves their reduction in Data.
func (p *Plan) reduceAll(rank, size int) {
	at := make([]Span, size)
	for i := range at {
		at[i] = one(Temp, i)
	}
	at[rank] = one(Data, 0)
	collect := make(Round, 0, size-1)
	for k := 1; k < size; k++ {
		from := mod(rank+k, size)
		collect = append(collect, recv(at[from], from))
	}
	p.round(collect...)
	p.combineAll(one(Data, 0), at, func(i int) Span { return one(Temp, size+i) })
}
