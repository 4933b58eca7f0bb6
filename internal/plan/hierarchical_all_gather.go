package plan

// A hierarchicalAllGather leaves the chunks of all ranks on every rank. The heads of a team
// gather its chunks; the heads of the same number gather those of their teams from all hosts;
// and the heads of a host gather all.
//
// Chunk i is always in Data at i, so that all parts work in place.
type hierarchicalAllGather struct {
	teams   int   // the maximum on every host
	collect inner // a gather in a team
	across  inner // an all-gather
	spread  inner // an all-gather on a host
	down    inner // a broadcast in a team, of one chunk
}

func (s hierarchicalAllGather) plan(h Hosts, rank, _ int) Plan {
	x := h.hierarchy(rank, -1, s.teams)
	x.Chunks = h.Size()
	at := func(chunks [][]int) sites {
		p := x.pick(data, chunks)
		return sites{p, p, p}
	}
	x.round(copyTo(one(Data, rank), one(Input, rank)))
	x.inTeam(s.collect, at(singles(x.team())))
	x.inColumn(0, s.across, at(x.byHost()))
	x.onHost(0, s.spread, at(x.byNumber()))
	x.inTeam(s.down, x.inPlace(0, x.Chunks, 1))
	return x.Plan
}

// singles makes each rank represent itself.
func singles(ranks []int) (chunks [][]int) {
	for i := range ranks {
		chunks = append(chunks, ranks[i:i+1])
	}
	return chunks
}

// byHost returns the teams with the number of this rank's team, by host.
func (x *hierarchy) byHost() (chunks [][]int) {
	for _, teams := range x.teams {
		chunks = append(chunks, teams[x.number])
	}
	return chunks
}

// byNumber returns the ranks in teams of each number.
func (x *hierarchy) byNumber() (chunks [][]int) {
	chunks = make([][]int, x.width())
	for _, teams := range x.teams {
		for i, team := range teams {
			chunks[i] = append(chunks[i], team...)
		}
	}
	return chunks
}
