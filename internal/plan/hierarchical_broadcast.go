package plan

// A hierarchicalBroadcast leaves the vector of root on every rank. Root gives
// each head of its host a share, the heads of a share broadcast it across
// hosts, and the heads of a host gather the shares, which root only gives.
type hierarchicalBroadcast struct {
	teams  int   // the maximum on every host
	deal   inner // a scatter on the host of root
	across inner // a broadcast of one chunk
	spread inner // an all-gather on a host
	down   inner // a broadcast in a team, of one chunk
}

func (s hierarchicalBroadcast) plan(h Hosts, rank, root int) Plan {
	x := h.hierarchy(rank, root, s.teams)
	x.Chunks = x.width()
	whole, shares := x.inPlace(0, x.Chunks, 1), x.inPlace(0, x.Chunks, x.width())
	lo, hi := x.share()
	host, number := x.rootAt()

	spread := s.spread
	if x.host == host {
		x.onHost(number, s.deal, shares)
		spread = sparing(spread, number)
	}
	x.inColumn(host, s.across, x.inPlace(lo, hi, 1))
	x.onHost(0, spread, shares)
	x.inTeam(s.down, whole)
	return x.Plan
}
