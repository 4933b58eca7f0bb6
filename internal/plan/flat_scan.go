package plan

// FlatScan leaves on every rank the reduction of the vectors of ranks 0 up to
// itself, in their order, in one round: each rank sends its vector to all higher ranks and
// reduces the received ones itself. The last rank receives n-1 vectors, so it is for few
// ranks.
func FlatScan(rank, size int) Plan {
	p := FlatExclusiveScan(rank, size)
	if rank > 0 {
		// From the left, so that the sum of the lower ranks is one operand.
		p.Rounds[len(p.Rounds)-1] = Round{combine(one(Data, 0), one(Temp, 0), one(Data, 0))}
	}
	return p
}

// FlatExclusiveScan is [FlatScan] without the rank's own vector. The vector of rank 0 does not
// change.
func FlatExclusiveScan(rank, size int) Plan {
	p := Plan{Chunks: 1}
	var round Round
	for to := rank + 1; to < size; to++ {
		round = append(round, send(one(Data, 0), to))
	}
	for from := range rank {
		round = append(round, recv(one(Temp, from), from))
	}
	p.round(round...)
	for i := 1; i < rank; i++ {
		p.round(combine(one(Temp, 0), one(Temp, 0), one(Temp, i)))
	}
	if rank > 0 {
		p.round(copyTo(one(Data, 0), one(Temp, 0)))
	}
	return p
}
