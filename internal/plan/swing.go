package plan

import "math/bits"

// A swing is the members of a communicator on a torus, in the order of their ranks: the last dimension
// has neighbors. Each dimension has a power of two of members.
//
// In the steps of a dimension a member exchanges with others at distances 1, -1, 3, -5, 11, …, in one
// direction if its coordinate is even, and in the other if it is odd. So the distances of all steps add up to
// two thirds of those of recursive doubling, and never more than a third of the dimension.
//
// De Sensi, Bonato, Saam and Hoefler, "Swing: short-cutting rings for higher bandwidth allreduce", NSDI
// 2024, for any number of dimensions. Bine trees use the same distances: De Sensi et al., "Bine trees:
// enhancing collective operations by optimizing communication locality", SC 2025.
type swing struct {
	fold
	bits []int // of the coordinates in each dimension
}

// swingOf returns the swing of a number of ranks on a torus with dimensions as equal as possible, the
// last ones larger.
func swingOf(size, dimensions int) swing {
	s := swing{fold: foldOf(size), bits: make([]int, dimensions)}
	steps := s.steps()
	for d := range s.bits {
		s.bits[d] = (d+1)*steps/dimensions - d*steps/dimensions
	}
	return s
}

// steps returns the number of exchanges until a member has been reached by all others.
func (s swing) steps() int { return bits.Len(uint(s.members)) - 1 }

// parts returns the number of parts of a vector that travel in different directions at a time.
func (s swing) parts() int { return 2 * len(s.bits) }

// step returns the dimension of the k-th step of a part, and the number of the step among those of the
// dimension. Dimensions take turns, and each part begins with another one.
func (s swing) step(part, k int) (dimension, number int) {
	for ; ; number++ {
		for i := range s.bits {
			dimension = mod(part-1-i, len(s.bits))
			if number < s.bits[dimension] {
				if k == 0 {
					return dimension, number
				}
				k--
			}
		}
	}
}

// exchange returns the peer of a member in the k-th step of a part, and which side of the pair the member
// is on. All members that it has exchanged with in later steps, and their peers, are on its side: so after
// the steps in reverse order the members of a side have the same sum, and after the steps in order pairs
// have sums of the same part of the vector.
func (s swing) exchange(member, part, k int) (peer int, upper bool) {
	d, number := s.step(part, k)
	low := 0 // bits of the coordinates of later dimensions
	for _, b := range s.bits[d+1:] {
		low += b
	}
	n := 1 << s.bits[d]
	at := member >> low & (n - 1)
	x, mirrored := at, part >= len(s.bits)
	if mirrored {
		x = -x & (n - 1)
	}
	distance := ((1<<(number+1) - 1) ^ oddDigits) - oddDigits // digits 1 in base -2
	if x%2 == 1 {
		distance = -distance
	}
	to := (x + distance) & (n - 1)
	if mirrored {
		to = -to & (n - 1)
	}
	return member + (to-at)<<low, swingSide(x, s.bits[d])>>number&1 == 1
}

// oddDigits converts between a number and its digits in base -2, as bits.
const oddDigits = 0x2aaaaaaa

// swingSide returns the sides of a coordinate in all steps of its dimension, as bits: those of the steps, in
// order, that lead from 0 to the coordinate.
//
// The distance of step k is the number with the digits 1 at positions 0 to k in base -2. Two steps in
// opposite directions move by the digits between them, so that each step begins or ends a run of ones.
func swingSide(x, digits int) int {
	if x%2 == 0 {
		x = -x
	}
	runs := ((x + oddDigits) ^ oddDigits) & (1<<digits - 1)
	return runs ^ runs>>1
}
