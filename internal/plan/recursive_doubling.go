package plan

// RecursiveDoublingAllReduce leaves the reduction of all vectors on every rank in ⌈log2 n⌉
// rounds, and one more if n is not a power of two. Every round moves a whole vector. It is the
// fastest for short vectors.
//
// It is canonical: all ranks compute the sum along the tree of merges, the lower ranks always
// on the left.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.5.
func RecursiveDoublingAllReduce(size, _ int) Rounds {
	return doubling(foldOf(size), func(member, k int) (peer int, upper bool) {
		return member ^ 1<<k, member&(1<<k) != 0
	})
}

// doubling returns the plans of members that exchange their sums in every step. exchange returns the peer of
// a member in the k-th step, and whether the operand of the member is the right one.
func doubling(f fold, exchange func(member, k int) (peer int, upper bool)) Rounds {
	steps := halvingSteps(f.members)
	data := one(Data, 0)
	// The first round takes the vector of the other rank of a pair, the last two copy the sum
	// from Temp and give it to the other rank.
	return Rounds{Chunks: 1, length: sameLen(steps + 3), moves: func(to Round, rank, k int) Round {
		paired := f.paired(rank)
		switch {
		case paired && rank%2 == 1:
			switch k {
			case 0:
				return append(to, send(data, rank-1))
			case 1:
				return append(to, recv(data, rank-1))
			}
		case k == 0 && paired:
			return append(to, reduce(data, data, rank+1))
		case 0 < k && k <= steps:
			peer, upper := exchange(f.member(rank), k-1)
			peer = f.first(peer)
			sum, next := stage(k-1, steps), stage(k, steps)
			return append(to, send(sum, peer), Move{Kind: Reduce, Dst: next, A: sum, Peer: peer, Left: upper})
		case k == steps+1 && stage(steps, steps) != data:
			return append(to, copyTo(data, stage(steps, steps)))
		case k == steps+2 && paired:
			return append(to, send(data, rank+1))
		}
		return to
	}}
}

// stage returns the location of the k-th of several partial sums, or of the vector for 0. A sum
// must not be overwritten while it is sent, so two chunks of Temp alternate, and the last sum is
// in Data. A single sum must also be in Temp, since Data is being sent.
func stage(k, steps int) Span {
	if k == 0 || k == steps && steps > 1 {
		return one(Data, 0)
	}
	return one(Temp, (k-1)%2)
}
