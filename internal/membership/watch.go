package membership

import (
	"math"
	"slices"
)

// watchersDefault is how many nodes watch each node: enough that one lossy
// link or a second failure does not decide alone, few enough that a node's
// heartbeats cost nothing.
const watchersDefault = 6

// Watched returns the ranks that the given rank watches: k of them, or all
// others if they are fewer. k = 0 means 6. Every rank is watched by as many as
// it watches, and the same view gives the same answer everywhere.
//
// The graph is circulant with geometrically growing steps, the multi-step
// loop network of Bermond, Comellas and Hsu, "Distributed loop computer
// networks: a survey", JPDC 24(1), 1995. Its diameter is about k·n^(1/k), so
// a report spreads in a few hops, and as the step 1 is among the others it
// cannot fall apart.
func Watched(v View, rank, k int) []int { return neighbours(v.Size(), rank, k, +1) }

// Watchers returns the ranks that watch the given rank.
func Watchers(v View, rank, k int) []int { return neighbours(v.Size(), rank, k, -1) }

// Watches reports whether a node watches another, of which it has the name, or
// the other way round, if each watches k. Who is in no view is watched, and so is
// every peer before there is one.
func Watches(v *View, self NodeID, peer string, k int) bool {
	id, err := ParseNodeID(peer)
	if v == nil || err != nil {
		return true
	}
	a, in := v.Rank(self)
	b, there := v.Rank(id)
	return !in || !there || slices.Contains(Watched(*v, a, k), b) || slices.Contains(Watched(*v, b, k), a)
}

func neighbours(n, rank, k, sign int) []int {
	if rank < 0 || rank >= n {
		return nil
	}
	var out []int
	for _, step := range watchSteps(n, k) {
		out = append(out, (rank+sign*step+n)%n)
	}
	slices.Sort(out)
	return out
}

// watchSteps returns k different steps between 1 and n-1, in rising order.
func watchSteps(n, k int) []int {
	if k <= 0 {
		k = watchersDefault
	}
	k = max(0, min(k, n-1))
	steps := make([]int, k)
	for i := range steps {
		// Rounding may make small steps equal; the room above (at most
		// n-k+i) and below (the step before) keeps them apart.
		s := int(math.Round(math.Pow(float64(n), float64(i)/float64(k))))
		if i > 0 {
			s = max(s, steps[i-1]+1)
		}
		steps[i] = min(s, n-k+i)
	}
	return steps
}
