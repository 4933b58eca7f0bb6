package trace

import (
	"fmt"
	"maps"
	"slices"
)

// A flight is data that a rank has sent and that the other rank, which waits for it, has
// not received.
type flight struct {
	from, to       int
	transport      string
	sent, received uint64
}

func (f flight) String() string {
	transport := ""
	if f.transport != "" {
		transport = " on " + clip(f.transport)
	}
	return fmt.Sprintf("data of rank %d for rank %d, in flight%s: %d bytes sent and %d received", f.from, f.to, transport, f.sent, f.received)
}

// flights finds the links with bytes in flight to a rank from one that it waits for, and
// marks that rank as delayed: it waits for the network rather than for another rank.
//
// The snapshots are not of the same instant: while operations make progress, a flight may
// have arrived already. When they hang, the counts of both sides are final.
func (a *world) flights(waits map[int][]int) (list []flight, delayed map[int]bool) {
	delayed = make(map[int]bool)
	for _, to := range slices.Sorted(maps.Keys(waits)) {
		sources := slices.Clone(waits[to])
		slices.Sort(sources)
		for _, from := range slices.Compact(sources) {
			out, in := a.link(from, to), a.link(to, from)
			if out == nil || in == nil || out.Sent <= in.Received {
				continue
			}
			list = append(list, flight{from, to, out.Transport, out.Sent, in.Received})
			delayed[to] = true
		}
	}
	return list, delayed
}

// link returns the link to peer in the snapshot of a rank, or nil.
func (a *world) link(rank, peer int) *Link {
	s := a.ranks[rank]
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Links, func(l Link) bool { return l.Rank == peer })
	if i < 0 {
		return nil
	}
	return &s.Links[i]
}
