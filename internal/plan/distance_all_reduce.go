package plan

import "slices"

// DistanceAllReduce returns the plans of an all-reduce along a tree with edges between ranks at given distances:
// a reduction to rank 0, then a broadcast. It takes 2(n-1) messages of a whole vector. The distances are in
// ascending order, and the first one is 1. If ranks have links at these distances already, it needs no others.
//
// A rank is a sum of distances, with the largest ones first, as often as they fit. Its parent is the rank without the
// last of them. So the ranks of a subtree are neighbors, and operands are combined in the order of the ranks.
// Since one rank computes the last sum, all have the same result.
func DistanceAllReduce(distances []int) func(rank, size int) Plan {
	return func(rank, size int) Plan {
		p := Plan{Chunks: 1}
		data := one(Data, 0)
		var children []int
		for _, d := range distances {
			if child := rank + d; child < size && distanceParent(child, distances) == rank {
				children = append(children, child)
			}
		}
		for _, child := range children {
			p.round(reduce(data, data, child))
		}
		if rank > 0 {
			parent := distanceParent(rank, distances)
			p.round(send(data, parent))
			p.round(recv(data, parent))
		}
		for _, child := range slices.Backward(children) {
			p.round(send(data, child))
		}
		return p
	}
}

// DistanceAlgorithm returns DistanceAllReduce as an algorithm. It is in no table: its distances are a parameter.
func DistanceAlgorithm(distances []int) Algorithm {
	return Algorithm{
		Name: "distances", Plan: rootless(DistanceAllReduce(distances)), Single: true, Uneven: true, Ordered: true,
	}
}

// distanceParent returns the parent of a rank other than 0 in the tree of DistanceAllReduce.
func distanceParent(rank int, distances []int) int {
	left, last := rank, 0
	for _, d := range slices.Backward(distances) {
		if d <= left {
			left, last = left%d, d
		}
	}
	return rank - last
}
