package plan

// SwingAllReduce leaves the reduction of all vectors on every rank, like [RabenseifnerAllReduce], on a torus
// with a number of dimensions. The vector has two parts for each dimension, which travel at the same
// time, so that a member uses all its links.
//
// De Sensi, Bonato, Saam and Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce", NSDI
// 2024, §3. Contiguous positions of the vector in place of scattered blocks, and pairs of ranks where
// their number is no power of two, are those of RabenseifnerAllReduce.
func SwingAllReduce(dimensions int) func(size, root int) Rounds {
	return func(size, _ int) Rounds {
		s := swingOf(size, dimensions)
		steps, chunks := s.steps(), s.members*s.parts()
		bound := func(position int) int { return position * s.parts() }
		return Rounds{Chunks: chunks, length: sameLen(2 + 2*steps + 1), moves: func(to Round, rank, k int) Round {
			h := halver{fold: s.fold, rank: rank, in: Data, acc: Data, bound: bound}
			member := h.member(rank)
			leads := h.lead(member) == rank
			switch last := 2 + 2*steps; {
			case k < 2:
				return h.foldPair(to, k)
			case k < last && leads:
				for part := range s.parts() {
					to = s.exchangeHalf(to, member, part, k-2)
				}
			case k == last && h.paired(rank) && leads:
				return append(to, send(span(Data, 0, chunks), rank^1))
			case k == last && h.paired(rank):
				return append(to, recv(span(Data, 0, chunks), rank^1))
			}
			return to
		}}
	}
}

// exchangeHalf appends the moves of a part in a round: in the first rounds a pair divides the positions that
// both have partial sums of, in the others it exchanges the complete ones, in reverse order.
func (s swing) exchangeHalf(to Round, member, part, round int) Round {
	steps := s.steps()
	last := min(round, 2*steps-1-round)
	lo, hi := part*s.members, (part+1)*s.members
	for k := 0; ; k++ {
		peer, upper := s.exchange(member, part, k)
		mid := (lo + hi) / 2
		keep, give := span(Data, lo, mid), span(Data, mid, hi)
		if upper {
			keep, give = give, keep
		}
		lo, hi = keep.Lo, keep.Hi
		if k < last {
			continue
		}
		peer = s.first(peer)
		if round >= steps {
			return append(to, send(keep, peer), recv(give, peer))
		}
		return append(to, send(give, peer), Move{Kind: Reduce, Dst: keep, A: keep, Peer: peer, Left: upper})
	}
}

// SwingShortAllReduce leaves the reduction of all vectors on every rank, like
// [RecursiveDoublingAllReduce], on a torus with a number of dimensions. It is the latency-optimal
// algorithm of the paper of [SwingAllReduce], §3.1, with the longest distance first, so that all ranks compute
// one sum.
func SwingShortAllReduce(dimensions int) func(size, root int) Rounds {
	return func(size, _ int) Rounds {
		s := swingOf(size, dimensions)
		return doubling(s.fold, func(member, k int) (int, bool) { return s.exchange(member, 0, s.steps()-1-k) })
	}
}
