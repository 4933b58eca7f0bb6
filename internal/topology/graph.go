package topology

import (
	"math"
	"slices"
)

// appendNeighbors appends the neighbors of a rank in the order of their distance upwards, modulo n. Since
// the order of a k-regular graph is the same from every rank, so is the choice among equal routes, and
// no rank relays more than others.
func (g Graph) appendNeighbors(to []int, rank int) []int {
	start := len(to)
	switch {
	case rank < 0 || rank >= g.n:
		return to
	case g.isComplete():
		for step := 1; step < g.n; step++ {
			to = append(to, (rank+step)%g.n)
		}
		return to
	case g.topology.kind == hypercube:
		to = appendHypercubeNeighbors(to, rank, g.n)
	default:
		for _, step := range g.steps {
			to = append(to, (rank+step)%g.n, (rank-step+g.n)%g.n)
		}
		if other, ok := g.opposite(rank); g.topology.k%2 == 1 && ok {
			to = append(to, other)
		}
	}
	slices.SortFunc(to[start:], func(a, b int) int { return (a-rank+g.n)%g.n - (b-rank+g.n)%g.n })
	return to
}

// opposite returns the rank halfway round, which makes an odd number of neighbors. If n is odd, the last
// rank has none, and the others are paired as if it were absent.
func (g Graph) opposite(rank int) (other int, ok bool) {
	paired := g.n - g.n%2
	if rank >= paired {
		return 0, false
	}
	return (rank + paired/2) % paired, true
}

// steps returns the distances of the neighbors on each side of a rank that has k neighbors: k/2 different
// numbers, which grow geometrically. 1 is always one of them, so the graph is connected, and a ring of all
// ranks uses links only. None is the distance of a rank halfway round.
//
// The distances are powers of two as long as these differ. The best factor between them is n^(2/k), but then
// almost every change of n would change the distances, and with them the links of all nodes.
func steps(n, k int) []int {
	list, largest := make([]int, k/2), (n-1)/2
	if k%2 == 1 && n%2 == 1 {
		largest--
	}
	for i := range list {
		step := 1 << int(math.Round(math.Log2(float64(n))*float64(i)/float64(len(list))))
		if i > 0 {
			step = max(step, list[i-1]+1)
		}
		list[i] = min(step, largest-(len(list)-1-i))
	}
	return list
}

// appendHypercubeNeighbors appends the neighbors of a corner of a hypercube that lacks the corners from n on. Two
// corners with numbers that differ in one bit are linked. A missing corner leaves its neighbor below the
// highest bit without a neighbor, and some corners above the highest bit as well. One of these corners above
// is its substitute: the neighbor below is linked to it in place of the missing corner.
func appendHypercubeNeighbors(to []int, rank, n int) []int {
	d := dimensions(n)
	if d == 0 {
		return to
	}
	top := 1 << (d - 1)
	for bit := 1; bit <= top; bit <<= 1 {
		other := rank ^ bit
		switch {
		case other < n:
			to = append(to, other)
		case rank >= top && substituteOf(other^top, n) == rank:
			to = append(to, other^top)
		case bit == top:
			if upper := substituteOf(rank, n); upper >= 0 {
				to = append(to, upper)
			}
		}
	}
	return to
}

// substituteOf returns the corner above the highest bit that a corner below it is linked to in place of a missing
// corner, or -1 if the missing corner has no neighbor above the highest bit.
func substituteOf(lower, n int) (upper int) {
	top := 1 << (dimensions(n) - 1)
	for bit := top >> 1; bit > 0; bit >>= 1 {
		if upper = lower ^ bit | top; upper < n {
			return upper
		}
	}
	return -1
}
