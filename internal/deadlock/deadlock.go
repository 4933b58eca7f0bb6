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

// A Call is a call in progress that waits for the ranks For and those of Ranges: for each of them or, with
// Any, for one of them. A caller that cannot prove that a call waits for a rank leaves the rank out or, with
// Any, marks its own rank as Busy.
type Call struct {
	Any    bool
	For    []int
	Ranges []Range
}

// A Range is the ranks from First to Last, in constant space.
type Range struct{ First, Last int }

// A set is a set of ranks. below[r] is the number of its members below r when it was counted.
type set struct {
	of    map[int]bool
	below []int
}

// count counts the members below each rank of a graph with the ranks below end.
func (s *set) count(end int) {
	s.below = append(s.below[:0], 0)
	for r := range end {
		n := s.below[r]
		if s.of[r] {
			n++
		}
		s.below = append(s.below, n)
	}
}

// within returns the number of members in a range when they were counted.
func (s *set) within(r Range) int {
	end := len(s.below) - 1
	first, last := min(max(r.First, 0), end), min(r.Last+1, end)
	return s.below[max(first, last)] - s.below[first]
}

// touches reports whether c waits for a member of s.
func (c *Call) touches(s *set) bool {
	return slices.ContainsFunc(c.For, func(rank int) bool { return s.of[rank] }) ||
		slices.ContainsFunc(c.Ranges, func(r Range) bool { return s.within(r) > 0 })
}

func (c *Call) isBlocked(blocked *set) bool {
	if c.Any {
		return !slices.ContainsFunc(c.For, func(rank int) bool { return !blocked.of[rank] }) &&
			!slices.ContainsFunc(c.Ranges, func(r Range) bool { return blocked.within(r) <= r.Last-r.First })
	}
	return c.touches(blocked)
}

// end returns the rank after the highest.
func (g Graph) end() (end int) {
	for rank := range g {
		end = max(end, rank+1)
	}
	return end
}

// blocked returns the largest set of ranks that wait for ranks of the set in all their calls.
func (g Graph) blocked() map[int]bool {
	end, s := g.end(), &set{of: make(map[int]bool)}
	for rank, r := range g {
		if !r.Busy && len(r.Calls) > 0 {
			s.of[rank] = true
		}
	}
	for changed := true; changed; { // The last pass changes nothing, so its count is that of the result.
		changed = false
		s.count(end)
		for rank := range maps.Clone(s.of) {
			if slices.ContainsFunc(g[rank].Calls, func(c Call) bool { return !c.isBlocked(s) }) {
				delete(s.of, rank)
				changed = true
			}
		}
	}
	return s.of
}

// A Member is a rank of a deadlock.
type Member struct {
	Rank int
	Call int // index of a call of Graph[Rank].Calls
	For  int // a member that the call waits for
}

// Find returns the deadlock that contains rank: all ranks that wait for it while it waits for them,
// in both cases directly or by others. The first member is rank, and each of the others follows a
// member that waits for it. stuck has the members and all other blocked ranks that they wait for, directly or by others: if one of
// these were not blocked, a call of a member could end. Find returns nil if rank is not part of a deadlock, even if it waits
// for the ranks of one.
func (g Graph) Find(rank int) (members []Member, stuck []int) {
	blocked := g.blocked()
	if !blocked[rank] {
		return nil, nil
	}
	reached := g.reach(rank, blocked)
	if !slices.Contains(reached, rank) {
		return nil, nil
	}
	end, within := g.end(), &set{of: map[int]bool{rank: true}} // the ranks that also wait for rank
	for changed := true; changed; {
		changed = false
		within.count(end)
		for _, r := range slices.Backward(reached) {
			if !within.of[r] && slices.ContainsFunc(g[r].Calls, func(c Call) bool { return c.touches(within) }) {
				within.of[r], changed = true, true
			}
		}
	}
	members = []Member{g.member(rank, within)}
	for _, r := range reached {
		if within.of[r] && r != rank {
			members = append(members, g.member(r, within))
		}
	}
	return members, reached
}

// reach returns the blocked ranks that rank waits for, directly or by others, nearest first. It
// contains rank if rank waits for itself.
func (g Graph) reach(rank int, blocked map[int]bool) (reached []int) {
	unseen := NewUnseen(g.end())
	for next := []int{rank}; len(next) > 0; next = next[1:] {
		see := func(r int) {
			if blocked[r] {
				reached, next = append(reached, r), append(next, r)
			}
		}
		for _, c := range g[next[0]].Calls {
			for _, r := range c.For {
				unseen.Take(Range{r, r}, see)
			}
			for _, r := range c.Ranges {
				unseen.Take(r, see)
			}
		}
	}
	return reached
}

// member returns the first call of a rank that waits for a rank of within, and that rank. It is the rank itself only if no call waits for
// another one.
func (g Graph) member(rank int, within *set) Member {
	m := Member{Rank: rank, For: rank}
	for i, c := range g[rank].Calls {
		waitsFor := func(other int) bool {
			if !within.of[other] {
				return false
			}
			m.Call, m.For = i, other
			return other != rank
		}
		if slices.ContainsFunc(c.For, waitsFor) {
			return m
		}
		for _, r := range c.Ranges {
			for other := max(r.First, 0); other <= r.Last && other < len(within.below); other++ {
				if waitsFor(other) {
					return m
				}
			}
		}
	}
	return m
}

// Unseen has the ranks from 0 that no [Unseen.Take] has taken. Takes of many ranges that overlap cost little
// more than one rank each.
type Unseen struct {
	next []int // the rank itself if it is unseen, else a rank up to which all are seen
}

// NewUnseen returns an Unseen of the ranks below end.
func NewUnseen(end int) *Unseen {
	u := &Unseen{make([]int, max(end, 0)+1)}
	for i := range u.next {
		u.next[i] = i
	}
	return u
}

// find returns the first unseen rank from r on, or the end.
func (u *Unseen) find(r int) int {
	for u.next[r] != r {
		u.next[r] = u.next[u.next[r]]
		r = u.next[r]
	}
	return r
}

// Take takes the unseen ranks of a range, and calls f with each of them in ascending order.
func (u *Unseen) Take(r Range, f func(rank int)) {
	end := len(u.next) - 1
	for i := max(r.First, 0); i <= r.Last && i < end; i++ {
		if i = u.find(i); i > r.Last || i >= end {
			return
		}
		u.next[i] = i + 1
		f(i)
	}
}
