package plan

// StagedReduce leaves the reduction of all vectors on root: every rank reduces
// one chunk, as in StagedAllReduce, and sends the sum to root. It moves
// 2(n-1)/n of a vector on root and about one on others, in two rounds.
//
// It is canonical.
func StagedReduce(rank, size, root int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		return p
	}
	own := one(Data, rank)
	sum := own
	if rank != root {
		sum = staged(rank, size, rank) // It must not use Data.
	}
	p.collect(Data, rank, size)
	p.combineStaged(sum, own, rank, size)
	if rank != root {
		p.round(send(sum, root))
		return p
	}
	var gather Round
	for k := 1; k < size; k++ {
		from := mod(rank+k, size)
		gather = append(gather, recv(one(Data, from), from))
	}
	p.round(gather...)
	return p
}
