// Package deadlock finds ranks that wait for each other, in a graph of the waits of all ranks.
//
// A rank may make several calls at once. It is blocked if none of them can end: then it begins no
// other call either, unless another goroutine of its program does. A call that needs all of its
// peers cannot end if one of them is blocked, and a call that needs any of its peers cannot end if
// all of them are: the AND-OR model of E. Knapp, "Deadlock detection in distributed databases", ACM
// Computing Surveys 19(4), 1987. [Find] computes the largest set of ranks that are blocked by each
// other.
//
// The package is pure. Its caller collects the waits, and makes sure that they are of one instant
// and that nothing is in flight.
package deadlock

import (
	"maps"
	"slices"
)

// A Graph has the ranks with known waits. All others count as not blocked.
type Graph map[int]Rank

// A Rank has the calls in progress of a rank. A rank without calls is not blocked.
type Rank struct {
	// Busy says that a call may end without another rank.
	Busy  bool
	Calls []Call
}

// A Call is a call in progress that waits for the ranks For: for each of them or, with Any, for one
// of them. A caller that cannot prove that a call waits for a rank leaves the rank out or, with Any,
// marks its own rank as Busy.
type Call struct {
	Any bool
	For []int
}

func (c *Call) isBlocked(blocked map[int]bool) bool {
	if c.Any {
		return !slices.ContainsFunc(c.For, func(rank int) bool { return !blocked[rank] })
	}
	return slices.ContainsFunc(c.For, func(rank int) bool { return blocked[rank] })
}

// blocked returns the largest set of ranks that wait for ranks of the set in all their calls.
func (g Graph) blocked() map[int]bool {
	set := make(map[int]bool)
	for rank, r := range g {
		if !r.Busy && len(r.Calls) > 0 {
			set[rank] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for rank := range maps.Clone(set) {
			if slices.ContainsFunc(g[rank].Calls, func(c Call) bool { return !c.isBlocked(set) }) {
				delete(set, rank)
				changed = true
			}
		}
	}
	return set
}

// A Member is a rank of a deadlock.
type Member struct {
	Rank int
	Call int // index of a call of Graph[Rank].Calls
	For  int // a member that the call waits for
}

// Find returns the deadlock that contains rank: all ranks that wait for it while it waits for them,
// in both cases directly or by others. The first member is rank, and each of the others follows a
// member that waits for it. Find returns nil if rank is not part of a deadlock, even if it waits
// for the ranks of one.
func (g Graph) Find(rank int) []Member {
	blocked := g.blocked()
	if !blocked[rank] {
		return nil
	}
	reached := g.reach(rank, blocked)
	within := make(map[int]bool) // the ranks that also wait for rank
	for _, r := range reached {
		within[r] = slices.Contains(g.reach(r, blocked), rank)
	}
	if !within[rank] {
		return nil
	}
	members := []Member{g.member(rank, within)}
	for _, r := range reached {
		if within[r] && r != rank {
			members = append(members, g.member(r, within))
		}
	}
	return members
}

// reach returns the blocked ranks that rank waits for, directly or by others, nearest first. It
// contains rank if rank waits for itself.
func (g Graph) reach(rank int, blocked map[int]bool) (reached []int) {
	seen := make(map[int]bool)
	for next := []int{rank}; len(next) > 0; next = next[1:] {
		for _, c := range g[next[0]].Calls {
			for _, r := range c.For {
				if blocked[r] && !seen[r] {
					seen[r] = true
					reached, next = append(reached, r), append(next, r)
				}
			}
		}
	}
	return reached
}

// member returns the first call of a rank that waits for a rank of within, and that rank.
func (g Graph) member(rank int, within map[int]bool) (m Member) {
	for i, c := range g[rank].Calls {
		for _, r := range c.For {
			if within[r] {
				return Member{Rank: rank, Call: i, For: r}
			}
		}
	}
	return m
}
