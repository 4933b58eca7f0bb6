package membership

import (
	"maps"
	"math"
	"math/bits"
	"slices"
)

// WatchersDefault is the number of watchers of each node: enough that one lossy link or a
// second failure does not decide alone, and few enough that the cost of heartbeats is
// negligible.
const WatchersDefault = 6

// Watched returns the ranks that the given rank watches: k of them, or all others if
// they are fewer. k = 0 means WatchersDefault. Each rank has as many watchers as it watches, and the
// result depends on the view alone.
//
// The graph is circulant with geometrically growing steps, the multi-step loop network
// of Bermond, Comellas and Hsu, "Distributed loop computer networks: a survey", JPDC
// 24(1), 1995. Its diameter is about k·n^(1/k), so a report spreads in a few hops.
// Since 1 is one of the steps, the graph is connected. The steps are powers of two where that is
// possible. Short collectives of all ranks use the same distances, so they find most of their links made.
func Watched(v View, rank, k int) []int { return neighbors(v.Size(), rank, k, +1) }

// Watchers returns the ranks that watch the given rank.
func Watchers(v View, rank, k int) []int { return neighbors(v.Size(), rank, k, -1) }

// NewcomerLinks returns the ranks in a world of n nodes that a newcomer links itself to: those that
// would watch it or that it would watch if it entered as the last node, also if one node enters
// with it or leaves meanwhile. If more change, it is invited again.
func NewcomerLinks(n, k int) []int {
	near := make(map[int]bool)
	for size := max(n, 2); size <= n+2; size++ {
		for _, step := range WatchDistances(size, k) {
			for shift := -1; shift <= 1; shift++ {
				for _, rank := range [...]int{n + shift - step, n + shift + step} {
					if rank = (rank + 2*size) % size; rank < n {
						near[rank] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(near))
}

func neighbors(n, rank, k, sign int) []int {
	if rank < 0 || rank >= n {
		return nil
	}
	var out []int
	for _, step := range WatchDistances(n, k) {
		out = append(out, (rank+sign*step+n)%n)
	}
	slices.Sort(out)
	return out
}

// constantFrom is the least size such that all larger ones between two powers of two have the same distances. If a node
// dies, only the watches across its rank change. In smaller worlds the distances depend on the exact size.
const constantFrom = 65

// WatchDistances returns the distances between the ranks that watch each other in a view of n nodes, in ascending
// order: each rank watches k others, at these distances. k = 0 means WatchersDefault. The first distance is 1. There is none in a world
// of one node.
func WatchDistances(n, k int) []int {
	if k <= 0 {
		k = WatchersDefault
	}
	k = max(0, min(k, n-1))
	steps := make([]int, k)
	log, digits := math.Log2(float64(n)), bits.Len(uint(n-1))
	for i := range steps {
		// Rounding may make small steps equal. The bounds above (at most n-k+i) and
		// below (the step before) keep them apart.
		s := 1 << int(math.Round(log*float64(i)/float64(k)))
		if n >= constantFrom {
			s = 1 << (digits * i / k)
		}
		if i > 0 {
			s = max(s, steps[i-1]+1)
		}
		steps[i] = min(s, n-k+i)
	}
	return steps
}
