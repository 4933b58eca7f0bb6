package plan

// A hierarchicalAllReduce leaves the reduction of all vectors on every rank. The heads of a
// host reduce its vectors, so that each has a share of the sum; the heads of a share
// all-reduce it across hosts; and the heads of a host gather the shares. So with h hosts no
// head moves more than 2(h-1)/h of a share between hosts, whereas a ring of all ranks moves
// two vectors from each host to the next, through a single rank.
//
// The sum of a share over a host is computed once, by its head, and an all-reduce across
// hosts gives all its ranks the same bits: so does the whole.
type hierarchicalAllReduce struct {
	teams          int   // the maximum on every host
	up, down       inner // a reduction and a broadcast in a team, of one chunk
	reduce, spread inner // a reduce-scatter and an all-gather on a host
	across         inner // an all-reduce
}

func (s hierarchicalAllReduce) plan(h Hosts, rank, _ int) Plan {
	x := h.hierarchy(rank, -1, s.teams)
	pieces := s.across(0, h.Count(), 0).Chunks
	x.Chunks = x.width() * pieces
	whole, shares := x.inPlace(0, x.Chunks, 1), x.inPlace(0, x.Chunks, x.width())
	lo, hi := x.share()

	x.inTeam(s.up, whole)
	x.onHost(0, s.reduce, shares)
	x.inColumn(0, s.across, x.inPlace(lo, hi, pieces))
	x.onHost(0, s.spread, shares)
	x.inTeam(s.down, whole)
	return x.Plan
}

// inPlace returns sites with n parts of a range of chunks as operand and result.
func (x *hierarchy) inPlace(lo, hi, n int) sites {
	whole := x.cut(data, lo, hi, n)
	return sites{Data: whole, Input: whole, Temp: x.cut(sums, lo, hi, n)}
}
