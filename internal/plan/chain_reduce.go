package plan

// ChainReduce leaves the reduction of all vectors on root: each rank adds its
// own to the sum that it passes on to the next. A rank sends and receives one
// vector, the least possible, in n-1 rounds. Cut into many slices that follow
// one another, a long vector takes hardly longer than a single message.
//
// It is ChainBroadcast turned round.
func ChainReduce(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	prev := mod(rank-1, size)
	sum, acc := one(Data, 0), one(Temp, 0)
	if rank == root {
		acc = one(Data, 0)
	}
	if prev != root {
		p.round(reduceL(acc, sum, prev))
		sum = acc
	}
	if rank != root {
		p.round(send(sum, mod(rank+1, size)))
	}
	return p
}
