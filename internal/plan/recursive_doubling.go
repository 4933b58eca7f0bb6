package plan

import "math/bits"

// RecursiveDoublingAllReduce leaves the reduction of all vectors on every rank in ⌈log2 n⌉
// rounds, and one more if n is not a power of two. Every round moves a whole vector. It is the
// fastest for short vectors.
//
// It is canonical: all ranks compute the sum along the tree of merges, the lower ranks always
// on the left.
//
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
// MPICH", IJHPCA 19(1), 2005, §4.5.
func RecursiveDoublingAllReduce(rank, size int) Plan {
	p := Plan{Chunks: 1}
	f := foldOf(size)
	data := one(Data, 0)

	if f.paired(rank) {
		if rank%2 == 1 {
			p.round(send(data, rank-1))
			p.round(recv(data, rank-1))
			return p
		}
		p.round(reduce(data, data, rank+1))
	}
	sum, steps := data, bits.Len(uint(f.members))-1
	for k := range steps {
		peer := f.first(f.member(rank) ^ 1<<k)
		next := stage(k+1, steps)
		p.round(send(sum, peer), reduceInOrder(next, sum, rank, peer))
		sum = next
	}
	if sum != data {
		p.round(copyTo(data, sum))
	}
	if f.paired(rank) {
		p.round(send(data, rank+1))
	}
	return p
}

// stage returns the location of the k-th of several partial sums. A sum must not be overwritten
// while it is sent, so two chunks of Temp alternate, and the last sum is in Data. A single sum
// must also be in Temp, since Data is being sent.
func stage(k, steps int) Span {
	if k == steps && steps > 1 {
		return one(Data, 0)
	}
	return one(Temp, (k-1)%2)
}
