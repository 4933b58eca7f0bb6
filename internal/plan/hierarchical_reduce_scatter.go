package plan

// A hierarchicalReduceScatter leaves chunk r of the reduction on rank r. The heads of a host
// reduce its vectors, so that each has the sums of the chunks of all teams of its number; these
// heads reduce them across hosts, so that each has those of its team; and it scatters them.
// It is the reverse of hierarchicalAllGather.
type hierarchicalReduceScatter struct {
	teams  int   // the maximum on every host
	up     inner // a reduction in a team, of one chunk
	reduce inner // a reduce-scatter on a host
	across inner // a reduce-scatter
	deal   inner // a scatter in a team
}

func (s hierarchicalReduceScatter) plan(h Hosts, rank, _ int) Plan {
	x := h.hierarchy(rank, -1, s.teams)
	x.Chunks = h.Size()
	from, to := input, sums
	at := func(chunks [][]int) sites {
		return sites{Data: x.pick(to, chunks), Input: x.pick(from, chunks), Temp: x.pick(spare, chunks)}
	}
	if x.inTeam(apart(s.up), sites{
		Data: x.cut(to, 0, x.Chunks, 1), Input: x.cut(from, 0, x.Chunks, 1), Temp: x.cut(spare, 0, x.Chunks, 1),
	}) {
		from = to
	}
	if x.onHost(0, s.reduce, at(x.byNumber())) {
		from = to
	}
	if len(x.team()) == 1 {
		to = data
	}
	if x.inColumn(0, s.across, at(x.byHost())) {
		from = to
	}
	to = data
	if !x.inTeam(s.deal, at(singles(x.team()))) && from != data {
		x.round(copyTo(one(Data, rank), from.at(rank, x.Chunks)))
	}
	return x.Plan
}
