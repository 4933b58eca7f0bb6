package plan

// RecursiveDoublingExclusiveScan leaves on every rank the reduction of the vectors of all lower
// ranks, in their order, in 1 + ⌈log2 (n-1)⌉ rounds of a whole vector each. The vector of rank
// 0 does not change.
//
// Hillis and Steele, "Data parallel algorithms", CACM 29(12), 1986: all vectors are shifted by
// one rank, and ranks 1 to n-1 scan the received vectors.
func RecursiveDoublingExclusiveScan(rank, size int) Plan {
	p := Plan{Chunks: 1}
	var shift Round
	if rank+1 < size {
		shift = append(shift, send(one(Data, 0), rank+1))
	}
	if rank > 0 {
		shift = append(shift, recv(one(Temp, 0), rank-1))
	}
	p.round(shift...)
	if rank > 0 {
		p.prefix(rank, size, 1, one(Temp, 0), 1)
	}
	return p
}
