package plan

// A fold makes a power of two of any number of ranks: each of the first pairs
// (0,1), (2,3), … counts as one member, every other rank is a member by
// itself. Members are numbered in the order of their ranks, so that sums over
// neighbouring members stay sums over neighbouring ranks.
type fold struct {
	members int // the largest power of two that is not above the size
	pairs   int
}

func foldOf(size int) fold {
	members := 1
	for 2*members <= size {
		members *= 2
	}
	return fold{members, size - members}
}

// paired says whether the rank shares its member with the rank beside it.
func (f fold) paired(rank int) bool { return rank < 2*f.pairs }

// member returns the number of the member that a rank belongs to.
func (f fold) member(rank int) int {
	if f.paired(rank) {
		return rank / 2
	}
	return rank - f.pairs
}

// first is the lowest rank of a member, and the size for one past the last.
func (f fold) first(member int) int {
	if member < f.pairs {
		return 2 * member
	}
	return member + f.pairs
}

// A merge joins two groups of neighbouring ranks, [lo,mid) and [mid,hi).
//
// The merges of all ranks form one binary tree over the ranks. It is the shape
// of the sum in every canonical algorithm, and the binomial tree of the rooted
// ones.
type merge struct{ lo, mid, hi int }

// merges are those that a rank takes part in, from its pair up to all ranks.
func merges(rank, size int) []merge {
	var ms []merge
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
