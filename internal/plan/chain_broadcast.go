package plan

// ChainBroadcast leaves root's vector on every rank: each rank forwards it to the next. A rank
// sends and receives one vector, the minimum, in n-1 rounds. Divided into many slices that are
// pipelined, a long vector takes hardly longer than a single message.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.2, calls it the pipeline.
func ChainBroadcast(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	data := one(Data, 0)
	next := mod(rank+1, size)
	if rank != root {
		p.round(recv(data, mod(rank-1, size)))
	}
	if next != root {
		p.round(send(data, next))
	}
	return p
}
