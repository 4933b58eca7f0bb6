package plan

import (
	"math/bits"
	"slices"
)

// A fold reduces any number of ranks to a power of two of members: each of the first pairs
// (0,1), (2,3), … is one member, and so is every other rank. Members are numbered in the order
// of their ranks, so that sums over neighboring members are sums over neighboring ranks.
type fold struct {
	members int // the largest power of two up to the size
	pairs   int
}

func foldOf(size int) fold {
	members := 1
	for 2*members <= size {
		members *= 2
	}
	return fold{members, size - members}
}

// paired reports whether the rank shares its member with a neighbor.
func (f fold) paired(rank int) bool { return rank < 2*f.pairs }

// member returns the number of the member that a rank belongs to.
func (f fold) member(rank int) int {
	if f.paired(rank) {
		return rank / 2
	}
	return rank - f.pairs
}

// first returns the lowest rank of a member, and the size for the number after the last.
func (f fold) first(member int) int {
	if member < f.pairs {
		return 2 * member
	}
	return member + f.pairs
}

// A merge joins two groups of neighboring ranks, [lo,mid) and [mid,hi).
//
// The merges of all ranks form one binary tree over the ranks. It is the shape of the sum in
// every canonical algorithm, and the binomial tree of the rooted ones.
type merge struct{ lo, mid, hi int }

// merges returns the merges of a rank, from its pair up to all ranks.
func merges(rank, size int) []merge { return appendMerges(nil, rank, size) }

// appendMerges appends the merges of a rank to ms.
func appendMerges(ms []merge, rank, size int) []merge {
	f := foldOf(size)
	if f.paired(rank) {
		lo := rank &^ 1
		ms = append(ms, merge{lo, lo + 1, lo + 2})
	}
	for d := 1; d < f.members; d *= 2 {
		lo := f.member(rank) &^ (2*d - 1)
		ms = append(ms, merge{f.first(lo), f.first(lo + d), f.first(lo + 2*d)})
	}
	return ms
}

// group returns the group of a rank.
func (m merge) group(rank int) (lo, hi int) {
	if rank < m.mid {
		return m.lo, m.mid
	}
	return m.mid, m.hi
}

// roots returns the roots of the trees of the two groups. near is also the root of both
// groups together. The root of a group is the given root if it is a member, and
// otherwise the lowest rank.
func (m merge) roots(root int) (near, far int) {
	left, right := groupRoot(m.lo, m.mid, root), groupRoot(m.mid, m.hi, root)
	if right == root {
		return right, left
	}
	return left, right
}

func groupRoot(lo, hi, root int) int {
	if lo <= root && root < hi {
		return root
	}
	return lo
}

// combineAll sets dst to the sum of operands of all ranks, in canonical order. Partial sums are in
// locations of their own: sum(i) is the location of the i-th. Their number grows with the logarithm
// of the number of ranks.
func (p *Plan) combineAll(dst Span, operands []Span, sum func(i int) Span) {
	size, at := len(operands), slices.Clone(operands)
	// The first call of a collective makes several plans of many rounds, so memory is allocated at once.
	p.Rounds = slices.Grow(p.Rounds, size)
	moves, ms := make(Round, 0, size), make([]merge, 0, bits.Len(uint(size)))
	// From the last rank down, the right side of a merge is always ready.
	for lo := size - 1; lo >= 0; lo-- {
		ms = appendMerges(ms[:0], lo, size)
		for i, m := range ms {
			if m.lo != lo {
				continue
			}
			to := dst
			if above := len(ms) - 1 - i; above > 0 {
				// While the sum of a right side waits for that of its left side, sums further down
				// are complete.
				side := 0
				if ms[i+1].mid == lo {
					side = 1
				}
				to = sum(2*(above-1) + side)
			}
			n := len(moves)
			moves = append(moves, combine(to, at[lo], at[m.mid]))
			p.round(moves[n : n+1 : n+1]...)
			at[lo] = to
		}
	}
}
