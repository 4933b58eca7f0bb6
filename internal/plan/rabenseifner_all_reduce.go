package plan

// RabenseifnerAllReduce leaves the reduction of all vectors on every rank. If n is a power of
// two it moves 2(n-1)/n of a vector per rank, the minimum, in 2·log2 n rounds; otherwise three
// rounds more than for the next lower power of two, and for the ranks of a pair one and a half
// vectors more.
//
// It is canonical, so its results have the bits of RecursiveDoublingAllReduce.
//
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, and Thakur,
// Rabenseifner and Gropp, IJHPCA 19(1), 2005, §4.5, here with the distances doubling in the
// first phase, which keeps the order of the ranks.
func RabenseifnerAllReduce(size, _ int) Rounds {
	f := foldOf(size)
	steps := halvingSteps(f.members)
	return Rounds{Chunks: f.members, length: sameLen(2 + 2*steps + 1), moves: func(to Round, rank, k int) Round {
		h := halver{fold: f, rank: rank, in: Data, acc: Data, bound: same}
		member := h.member(rank)
		leads := h.lead(member) == rank
		switch last := 2 + 2*steps; {
		case k < h.reduceLen():
			return h.reduceRound(to, k)
		case k < last && leads:
			half := halfAt(member, f.members, last-1-k)
			peer := h.lead(member ^ half.bit)
			return append(to, send(h.chunks(Data, half.keep), peer), recv(h.chunks(Data, half.give), peer))
		case k == last && h.paired(rank) && leads:
			return append(to, send(span(Data, 0, f.members), rank^1))
		case k == last && h.paired(rank):
			return append(to, recv(span(Data, 0, f.members), rank^1))
		}
		return to
	}}
}

func same(position int) int { return position }
