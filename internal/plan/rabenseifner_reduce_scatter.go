package plan

import "math/bits"

// RabenseifnerReduceScatter leaves chunk r of the reduction on rank r in
// log2 n + 1 rounds if n is a power of two, otherwise ⌊log2 n⌋ + 3, moving one
// vector per rank, and up to one and a half more for the ranks of a pair.
//
// It is canonical. Recursive halving in the order of the ranks leaves the
// pieces permuted, so that each goes to its owner in one more round.
//
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
func RabenseifnerReduceScatter(rank, size int) Plan {
	p := Plan{Chunks: size}
	if size == 1 {
		p.round(copyTo(one(Data, 0), one(Input, 0)))
		return p
	}
	f := foldOf(size)
	h := halver{fold: f, rank: rank, in: Input, acc: Temp, bound: f.first}

	var last Round
	if hs := h.reduce(&p); len(hs) > 0 {
		kept := h.chunks(Temp, hs[len(hs)-1].keep)
		for chunk := kept.Lo; chunk < kept.Hi; chunk++ {
			if chunk == rank {
				last = append(last, copyTo(one(Data, rank), one(Temp, rank)))
			} else {
				last = append(last, send(one(Temp, chunk), chunk))
			}
		}
	}
	steps := bits.Len(uint(f.members)) - 1
	holder := bits.Reverse(uint(f.member(rank))) >> (bits.UintSize - steps)
	if from := h.lead(int(holder)); from != rank {
		last = append(last, recv(one(Data, rank), from))
	}
	p.round(last...)
	return p
}
