package plan

// CirculantAllReduce leaves the reduction of all vectors on every rank in 2·⌈log2 n⌉ rounds,
// moving 2(n-1)/n of a vector per rank. Both are minimal for every n.
//
// Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv:2410.14234,
// 2024.
func CirculantAllReduce(size, _ int) Rounds {
	held := halvings(size)
	steps := len(held) - 1
	return Rounds{Chunks: size, length: sameLen(2 * steps), moves: func(to Round, rank, k int) Round {
		// Reduce-scatter: rank r is responsible for the chunks from r on. It gives the upper
		// half to the rank with the number of the first chunk of that half.
		if k < steps {
			n := held[k+1]
			give := held[k] - n
			to = sendArc(to, Data, arc{rank + n, give}, size, mod(rank+n, size))
			return reduceArc(to, Data, Data, arc{rank, give}, size, mod(rank-n, size))
		}
		// All-gather: the same steps in reverse.
		k = 2*steps - 1 - k
		n := held[k+1]
		take := held[k] - n
		to = sendArc(to, Data, arc{rank, take}, size, mod(rank-n, size))
		return recvArc(to, Data, arc{rank + n, take}, size, mod(rank+n, size))
	}}
}
