package plan

// PATReduceScatter leaves chunk r of the reduction on rank r in ⌈log2 n⌉ rounds, moving (n-1)/n of a vector per rank.
// Both are minimal for every n. It is the reverse of [PATAllGather], with the same merits: distances double while
// messages halve. It copies each chunk once. All chunks must have the same length.
func PATReduceScatter(size, _ int) Rounds {
	tree := patTreeOf(size)
	steps := len(tree.held) - 1
	return Rounds{Chunks: size, length: sameLen(steps + 2), moves: func(to Round, rank, k int) Round {
		switch {
		case k == 0 && size > 1:
			for i, o := range tree.offsets {
				to = append(to, copyTo(one(Temp, i), one(Input, mod(rank-int(o), size))))
			}
			return to
		case k == 0:
			return append(to, copyTo(one(Data, 0), one(Input, 0)))
		case k <= steps:
			step := steps - k
			distance, at := 1<<(k-1), tree.held[step]
			for _, s := range tree.sent(step) {
				if s.Len() > 0 {
					to = append(to, send(span(Temp, at, at+s.Len()), mod(rank-distance, size)), reduce(s, s, mod(rank+distance, size)))
					at += s.Len()
				}
			}
			return to
		case size > 1:
			return append(to, copyTo(one(Data, rank), one(Temp, 0)))
		}
		return to
	}}
}
