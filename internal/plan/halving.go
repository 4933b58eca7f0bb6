package plan

import "math/bits"

// A half is one step of recursive halving. Of the positions with partial sums on both a member
// and its peer, each keeps one half and gives the other away.
type half struct {
	bit        int // the peer is the member that differs in this bit
	keep, give [2]int
}

// halves returns the steps of a member, nearest peer first: distances double while the vector
// is halved, so that sums combine neighbors and keep the order of the ranks. The last step
// keeps one position: the number of the member with its bits reversed.
func halves(member, members int) []half {
	hs := make([]half, halvingSteps(members))
	for k := range hs {
		hs[k] = halfAt(member, members, k)
	}
	return hs
}

// halvingSteps returns the number of steps of a member.
func halvingSteps(members int) int { return bits.Len(uint(members)) - 1 }

// halfAt returns the k-th of the steps of a member.
func halfAt(member, members, k int) half {
	lo, hi := 0, members
	for bit := 1; ; bit *= 2 {
		mid := (lo + hi) / 2
		h := half{bit, [2]int{lo, mid}, [2]int{mid, hi}}
		if member&bit != 0 {
			h.keep, h.give = h.give, h.keep
		}
		if bit == 1<<k {
			return h
		}
		lo, hi = h.keep[0], h.keep[1]
	}
}

// A halver writes the plans that begin with recursive halving. It reads the vector from plan buffer
// in and leaves sums in plan buffer acc, which may be the same. Position i is the chunks from
// bound(i) up to bound(i+1).
type halver struct {
	fold
	rank, root int
	in, acc    Buf
	bound      func(position int) int
}

// lead returns the rank that acts for a member.
func (h *halver) lead(member int) int {
	return groupRoot(h.first(member), h.first(member+1), h.root)
}

// chunks returns the span of a range of positions.
func (h *halver) chunks(b Buf, positions [2]int) Span {
	return span(b, h.bound(positions[0]), h.bound(positions[1]))
}

// reduce adds rounds that leave in acc, on the rank that leads member m, the complete sum of
// its last half. For other ranks it returns no steps.
func (h *halver) reduce(p *Plan) []half {
	for k := range h.reduceLen() {
		p.round(h.reduceRound(nil, k)...)
	}
	if member := h.member(h.rank); h.lead(member) == h.rank {
		return halves(member, h.members)
	}
	return nil
}

// reduceLen returns the number of rounds of reduce: two for the ranks of a pair, and the steps of a member.
func (h *halver) reduceLen() int { return 2 + halvingSteps(h.members) }

// reduceRound appends the moves of the k-th round of reduce.
func (h *halver) reduceRound(to Round, k int) Round {
	member := h.member(h.rank)
	switch {
	case k < 2:
		return h.foldPair(to, k)
	case h.lead(member) != h.rank:
		return to
	}
	from := h.acc
	if k == 2 && !h.paired(h.rank) {
		from = h.in
	}
	half := halfAt(member, h.members, k-2)
	peer := h.lead(member ^ half.bit)
	sum, mine := h.chunks(h.acc, half.keep), h.chunks(from, half.keep)
	return append(to, send(h.chunks(from, half.give), peer), reduceInOrder(sum, mine, h.rank, peer))
}

// foldPair appends the moves of two rounds that leave the sum of a pair of ranks in acc of the
// leading one. Each reduces one half of the vector, so that neither waits for the other.
func (h *halver) foldPair(to Round, k int) Round {
	if !h.paired(h.rank) {
		return to
	}
	mate := h.rank ^ 1
	mine, other := [2]int{0, h.members / 2}, [2]int{h.members / 2, h.members}
	if h.rank > mate {
		mine, other = other, mine
	}
	sum := h.chunks(h.acc, mine)
	switch {
	case k == 0:
		return append(to, send(h.chunks(h.in, other), mate), reduceInOrder(sum, h.chunks(h.in, mine), h.rank, mate))
	case h.lead(h.member(h.rank)) == h.rank:
		return append(to, recv(h.chunks(h.acc, other), mate))
	}
	return append(to, send(sum, mate))
}
