package plan

import "slices"

// CirculantAllReduce leaves the reduction of all vectors on every rank in 2·⌈log2 n⌉ rounds,
// moving 2(n-1)/n of a vector per rank. Both are minimal for every n.
//
// Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234,
// 2024.
func CirculantAllReduce(rank, size int) Plan {
	p := Plan{Chunks: size}
	held := halvings(size)

	// Reduce-scatter: rank r is responsible for the chunks from r on. It gives the upper
	// half to the rank with the number of the first chunk of that half.
	for k, n := range held[1:] {
		give, to, from := held[k]-n, mod(rank+n, size), mod(rank-n, size)
		p.round(slices.Concat(
			sendArc(Data, arc{rank + n, give}, size, to),
			reduceArc(Data, Data, arc{rank, give}, size, from))...)
	}
	// All-gather: the same steps in reverse.
	for k, n := range slices.Backward(held[1:]) {
		take, to, from := held[k]-n, mod(rank-n, size), mod(rank+n, size)
		p.round(slices.Concat(
			sendArc(Data, arc{rank, take}, size, to),
			recvArc(Data, arc{rank + n, take}, size, from))...)
	}
	return p
}
