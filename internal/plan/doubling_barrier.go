package plan

// RecursiveDoublingBarrier is a barrier of ⌊log2 n⌋ rounds, and two more if n is not a power of two. Every rank exchanges one message
// per round with the same ranks as in [RecursiveDoublingAllReduce], which are neighbors in a hypercube.
func RecursiveDoublingBarrier(size, _ int) Rounds {
	f := foldOf(size)
	steps, length := halvingSteps(f.members), 0
	if size > 1 {
		length = steps + 2
	}
	// Temp has a chunk for each known rank, two for each member if some members are pairs.
	width := 1
	if f.pairs > 0 {
		width = 2
	}
	all := span(Temp, 0, width*f.members)
	return Rounds{Chunks: 1, length: sameLen(length), moves: func(to Round, rank, k int) Round {
		paired := f.paired(rank)
		switch {
		case paired && rank%2 == 1:
			switch k {
			case 0:
				return append(to, send(one(Data, 0), rank-1))
			case 1:
				return append(to, recv(all, rank-1))
			}
		case k == 0:
			to = append(to, copyTo(one(Temp, 0), one(Data, 0)))
			if paired {
				return append(to, recv(one(Temp, 1), rank+1))
			}
			if width == 2 {
				to = append(to, copyTo(one(Temp, 1), one(Data, 0)))
			}
		case k <= steps:
			d := width << (k - 1)
			peer := f.first(f.member(rank) ^ 1<<(k-1))
			return append(to, send(span(Temp, 0, d), peer), recv(span(Temp, d, 2*d), peer))
		case paired:
			return append(to, send(all, rank+1))
		}
		return to
	}}
}
