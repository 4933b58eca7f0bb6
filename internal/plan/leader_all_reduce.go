package plan

// LeaderAllReduce leaves the reduction of all vectors on every rank. Rank 0 reduces the vectors of
// all ranks, and all read its result. A rank waits once, for rank 0, which takes two rounds: it is
// for shared memory with more ranks than processors, where each further wait lasts until all
// ranks before it have had a turn. All work is done by rank 0, so it is for short vectors.
//
// It is canonical.
func LeaderAllReduce(rank, size int) Plan {
	p := FlatReduce(rank, size, 0)
	p.Rounds = append(p.Rounds, FlatBroadcast(rank, size, 0).Rounds...)
	return p
}
