package plan

// LeaderAllGather leaves the chunks of all ranks on every rank. Rank 0 gathers them, and all read its
// vector as a single message. A rank waits twice at most, and for one rank alone, where in
// [DirectAllGather] it waits for all others: it is for short chunks in shared memory.
func LeaderAllGather(rank, size int) Plan {
	p := DirectGather(rank, size, 0)
	all := span(Data, 0, size)
	if rank != 0 {
		p.round(recv(all, 0))
		return p
	}
	var spread Round
	for to := 1; to < size; to++ {
		spread = append(spread, send(all, to))
	}
	p.round(spread...)
	return p
}
