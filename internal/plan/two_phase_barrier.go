package plan

// TwoPhaseBarrier is a barrier of two consecutive messages: every rank reports to rank 0, which
// then releases all. It takes 2(n-1) messages in total, the minimum, but rank 0 handles all of
// them, so it is for few ranks.
//
// Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
// multiprocessors", ACM TOCS 9(1), 1991 (centralized barrier).
func TwoPhaseBarrier(rank, size int) Plan {
	p := Plan{Chunks: 1}
	if size == 1 {
		return p
	}
	reports := span(Temp, 0, size-1)
	if rank != 0 {
		p.round(send(one(Data, 0), 0))
		p.round(recv(reports, 0))
		return p
	}
	var arrive, release Round
	for i := 1; i < size; i++ {
		arrive = append(arrive, recv(one(Temp, i-1), i))
		release = append(release, send(reports, i))
	}
	p.round(arrive...)
	p.round(release...)
	return p
}
