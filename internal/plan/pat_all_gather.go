package plan

import "math/bits"

// PATAllGather leaves the chunks of all ranks on every rank in ⌈log2 n⌉ rounds, moving (n-1)/n of the result
// per rank. Both are minimal for every n. It copies each chunk once more than [CirculantAllGather].
//
// Distances halve while messages double, so that the longest messages go to the nearest ranks. On networks with less
// bandwidth between distant hosts it takes less time than CirculantAllGather, and than [HalvingAllGather] if n is no
// power of two. A message has chunks of ranks that are apart. They are kept together in Temp, in the order of their
// arrival, and copied to their places at the end. All chunks must have the same length.
//
// Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv:2506.20252, 2025, with
// one tree for all chunks.
func PATAllGather(size, _ int) Rounds {
	tree := patTreeOf(size)
	steps := len(tree.held) - 1
	return Rounds{Chunks: size, length: sameLen(steps + 2), moves: func(to Round, rank, k int) Round {
		own := one(Input, rank)
		switch {
		case k == 0 && size == 1:
			return append(to, copyTo(one(Data, rank), own))
		case k == 0:
			return append(to, copyTo(one(Data, rank), own), copyTo(one(Temp, 0), own))
		case k <= steps:
			distance, at := 1<<(steps-k), tree.held[k-1]
			for _, s := range tree.sent(k - 1) {
				if s.Len() > 0 {
					to = append(to, send(s, mod(rank+distance, size)), recv(span(Temp, at, at+s.Len()), mod(rank-distance, size)))
					at += s.Len()
				}
			}
			return to
		}
		for i, o := range tree.offsets[1:] {
			to = append(to, copyTo(one(Data, mod(rank-int(o), size)), one(Temp, i+1)))
		}
		return to
	}}
}

// A patTree is the tree by which each chunk reaches all ranks. In each step every rank sends the chunks that it holds to
// the rank at the distance of the step. The distances halve.
type patTree struct {
	offsets []int32 // by position in Temp, the distance from the owner of the chunk
	held    []int   // number of chunks that a rank holds before each step, and at the end
}

func patTreeOf(size int) patTree {
	t := patTree{offsets: []int32{0}}
	for distance := 1 << bits.Len(uint(size-1)) / 2; distance > 0; distance /= 2 {
		n := len(t.offsets)
		t.held = append(t.held, n)
		for _, o := range t.offsets[:n] {
			if int(o)+distance < size {
				t.offsets = append(t.offsets, o+int32(distance))
			}
		}
	}
	t.held = append(t.held, len(t.offsets))
	return t
}

// sent returns the chunks that a rank sends in a step: all that it holds, except one that would reach its owner again.
// There is at most one, since offsets are multiples of two distances.
func (t *patTree) sent(step int) [2]Span {
	n, distance, size := t.held[step], 1<<(len(t.held)-2-step), len(t.offsets)
	for i, o := range t.offsets[:n] {
		if int(o)+distance >= size {
			return [2]Span{span(Temp, 0, i), span(Temp, i+1, n)}
		}
	}
	return [2]Span{span(Temp, 0, n)}
}
