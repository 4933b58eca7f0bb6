package plan

// A hierarchicalReduce leaves the reduction of all vectors on root. The heads of a host
// reduce its vectors, so that each has a share of the sum; those of a share reduce it across
// hosts; and root gathers the shares of its host. It is the reverse of hierarchicalBroadcast.
type hierarchicalReduce struct {
	teams   int   // the maximum on every host
	up      inner // a reduction in a team, of one chunk
	reduce  inner // a reduce-scatter on a host
	across  inner // a reduction of one chunk
	collect inner // a gather on the host of root
}

func (s hierarchicalReduce) plan(h Hosts, rank, root int) Plan {
	x := h.hierarchy(rank, root, s.teams)
	x.Chunks = x.width()
	lo, hi := x.share()
	host, number := x.rootAt()

	from, to := data, sums
	if rank == root {
		to = data
	}
	at := func(lo, hi, n int) sites {
		return sites{Data: x.cut(to, lo, hi, n), Input: x.cut(from, lo, hi, n), Temp: x.cut(spare, lo, hi, n)}
	}
	if x.inTeam(apart(s.up), at(0, x.Chunks, 1)) {
		from = to
	}
	if x.onHost(0, s.reduce, at(0, x.Chunks, x.width())) {
		from = to
	}
	if x.inColumn(host, apart(s.across), at(lo, hi, 1)) {
		from = to
	}
	if x.host == host {
		x.onHost(number, s.collect, at(0, x.Chunks, x.width()))
	}
	return x.Plan
}
