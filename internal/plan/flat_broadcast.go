package plan

// FlatBroadcast leaves the vector of root on every rank. Root sends it to all others, which
// takes a single message but n-1 vectors of root: it is for few ranks, and for shared memory,
// where all read the same copy.
func FlatBroadcast(rank, size, root int) Plan {
	p := Plan{Chunks: 1}
	if rank != root {
		p.round(recv(one(Data, 0), root))
		return p
	}
	all := make(Round, 0, size-1)
	for k := 1; k < size; k++ {
		all = append(all, send(one(Data, 0), mod(root+k, size)))
	}
	p.round(all...)
	return p
}
