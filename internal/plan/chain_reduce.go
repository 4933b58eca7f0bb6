package plan

// ChainReduce leaves the reduction of all vectors on root: each rank adds its vector to the
// partial sum that it forwards to the next. A rank sends and receives one vector, the minimum,
// in n-1 rounds. Divided into many slices that are pipelined, a long vector takes hardly longer
// than a single message.
//
// It is the reverse of [ChainBroadcast].
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
