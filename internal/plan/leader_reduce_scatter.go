package plan

// LeaderReduceScatter leaves chunk r of the reduction on rank r. Rank 0 reduces the vectors of all
// ranks, and each reads its chunk of the sum. A rank waits for rank 0 alone, where in
// [StagedReduceScatter] it waits for all others: it is for short vectors in shared memory. All work is
// done by rank 0.
//
// It is canonical.
func LeaderReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	own := one(Input, rank)
	switch {
	case size == 1:
		p.round(copyTo(one(Data, 0), own))
		return p
	case rank != 0:
		p.round(send(span(Input, 0, size), 0))
		p.round(recv(one(Data, rank), 0))
		return p
	}
	p.reduceMessages(size)
	deal := Round{copyTo(one(Data, 0), one(Temp, 0))}
	for to := 1; to < size; to++ {
		deal = append(deal, send(one(Temp, to), to))
	}
	p.round(deal...)
	return p
}

// reduceMessages leaves on rank 0, in the first vector of Temp, the reduction of the vectors of all ranks
// in canonical order. It reduces them as they are received, so that it needs a logarithmic number of
// vectors of scratch.
func (p *Plan) reduceMessages(size int) {
	vector := func(i int) Span { return span(Temp, i*size, (i+1)*size) }
	// at[i] is the location of the sum of the ranks from i on, and empty for a message.
	at := make([]Span, size)
	at[0] = span(Input, 0, size)
	// From the last rank down, the right side of a merge is always ready, as in combineAll.
	for lo := size - 1; lo >= 0; lo-- {
		ms := merges(lo, size)
		for i, m := range ms {
			if m.lo != lo {
				continue
			}
			to := vector(0)
			if above := len(ms) - 1 - i; above > 0 {
				side := 0
				if ms[i+1].mid == lo {
					side = 1
				}
				to = vector(2*(above-1) + side + 1)
			}
			left, right := at[lo], at[m.mid]
			if left.Len() == 0 && right.Len() == 0 {
				p.round(recv(to, lo))
				left = to
			}
			switch {
			case right.Len() == 0:
				p.round(reduce(to, left, m.mid))
			case left.Len() == 0:
				p.round(reduceL(to, right, lo))
			default:
				p.round(combine(to, left, right))
			}
			at[lo] = to
		}
	}
}
