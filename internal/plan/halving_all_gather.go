package plan

import "math/bits"

// HalvingAllGather leaves the chunks of all ranks on every rank in log2 n + 1 rounds if n is a power of
// two, otherwise in ⌊log2 n⌋ + 3. If n is a power of two a rank sends and receives less than (n+1)/n of
// the result; otherwise a rank of a pair one result more.
//
// It is the reverse of [RabenseifnerReduceScatter]: after a round that permutes the chunks, distances
// halve while messages double, so that the longest messages go to the nearest ranks. On networks with
// less bandwidth between distant hosts it takes less time than [CirculantAllGather].
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 19(1), 2005, §4.1, with the distances in reverse. The order is that of Jeaugey, "PAT: a new
// algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252, 2025, and the
// permutation that of De Sensi et al., "Bine trees: enhancing collective operations by optimizing
// communication locality", SC 2025.
func HalvingAllGather(size, _ int) Rounds {
	f := foldOf(size)
	steps := halvingSteps(f.members)
	return Rounds{Chunks: size, length: sameLen(steps + 2), moves: func(to Round, rank, k int) Round {
		h := halver{fold: f, rank: rank, bound: f.first}
		member := h.member(rank)
		leads := h.lead(member) == rank
		switch last := steps + 1; {
		case k == 0:
			return h.permute(to, steps)
		case k < last && leads:
			half := halfAt(member, f.members, last-1-k)
			peer := h.lead(member ^ half.bit)
			return append(to, send(h.chunks(Data, half.keep), peer), recv(h.chunks(Data, half.give), peer))
		case k == last && h.paired(rank) && leads:
			return append(to, send(span(Data, 0, size), rank^1))
		case k == last && h.paired(rank):
			return append(to, recv(span(Data, 0, size), rank^1))
		}
		return to
	}}
}

// permute appends the moves that give each chunk to the rank of the member that keeps its position
// after all steps of halving.
func (h *halver) permute(to Round, steps int) Round {
	reversed := func(member int) int { return int(bits.Reverse(uint(member)) >> (bits.UintSize - steps)) }
	own, member := one(Input, h.rank), h.member(h.rank)
	if holder := h.lead(reversed(member)); holder == h.rank {
		to = append(to, copyTo(one(Data, h.rank), own))
	} else {
		to = append(to, send(own, holder))
	}
	if h.lead(member) != h.rank {
		return to
	}
	position := reversed(member)
	for chunk := h.first(position); chunk < h.first(position+1); chunk++ {
		if chunk != h.rank {
			to = append(to, recv(one(Data, chunk), chunk))
		}
	}
	return to
}
