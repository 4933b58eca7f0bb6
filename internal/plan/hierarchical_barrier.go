package plan

// A hierarchicalBarrier has one head on every host: the others report to it, the heads have
// a separate barrier, and release the others.
type hierarchicalBarrier struct {
	report  inner // a gather on a host, without scratch
	across  inner // a barrier that fills the same scratch on every rank
	release inner // a broadcast of one chunk on a host
}

// Sending chunks of Temp waits until they have arrived. So the heads exchange the reports of
// their hosts, which take as many chunks on every host as the largest host has ranks, and
// release the others with all received reports.
func (s hierarchicalBarrier) plan(h Hosts, rank, _ int) Plan {
	x := h.hierarchy(rank, -1, 1)
	x.Chunks = 1
	most := h.Most()
	// Chunk i of a part is a number of chunks of Temp, at position first+i in units of that
	// number.
	group := func(chunks, first int) site {
		return func(runs []Span, i int) []Span {
			return extend(runs, span(Temp, (first+i)*chunks, (first+i+1)*chunks))
		}
	}
	own := func(runs []Span, _ int) []Span { return extend(runs, one(Data, 0)) }

	x.inTeam(s.report, sites{Data: group(1, 0), Input: own})
	if x.isHead() {
		var fill Round
		for i := range most {
			if i == 0 && len(x.team()) == 1 || i >= len(x.team()) {
				fill = append(fill, copyTo(one(Temp, i), one(Data, 0)))
			}
		}
		x.round(fill...)
	}
	x.inColumn(0, s.across, sites{Data: group(most, 0), Temp: group(most, 1)})
	heard := (1 + s.across(0, h.Count(), 0).Temps) * most
	x.inTeam(s.release, sites{Data: group(heard, 0)})
	return x.Plan
}
