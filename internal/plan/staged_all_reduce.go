package plan

// StagedAllReduce leaves the reduction of all vectors on every rank, moving 2(n-1)/n of a
// vector per rank, the minimum, in two rounds. Unlike DirectAllReduce it keeps the other ranks'
// versions of a chunk until it has all, like StagedReduceScatter and for the same kind of
// memory.
//
// It is canonical.
func StagedAllReduce(rank, size int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		return p
	}
	sum := one(Data, rank)
	p.collect(Data, rank, size)
	p.combineStaged(sum, sum, rank, size)
	gather := make(Round, 0, 2*(size-1))
	for k := 1; k < size; k++ {
		to, from := mod(rank+k, size), mod(rank-k, size)
		gather = append(gather, send(sum, to), recv(one(Data, from), from))
	}
	p.round(gather...)
	return p
}
