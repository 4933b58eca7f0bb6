package plan

// OrderedAllReduce leaves the reduction of all vectors on every rank: a binomial reduction to
// rank 0, then a binomial broadcast. It takes 2·⌈log2 n⌉ rounds, and no rank applies the op
// more than ⌈log2 n⌉ times. Since one rank computes the last sum, all have the same result even
// if the op, a function of the user, is not deterministic.
//
// It is canonical.
func OrderedAllReduce(rank, size int) Plan {
	p := BinomialReduce(rank, size, 0)
	p.Rounds = append(p.Rounds, BinomialBroadcast(rank, size, 0).Rounds...)
	return p
}
