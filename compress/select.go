package compress

import "math"

// A selection finds the largest elements of vectors. It reuses its buffers.
type selection[T float] struct {
	values  []T   // elements that may be among the largest
	indices []int // of values in the vector
}

// A choice is the result of a selection: all values with a magnitude above least, and the
// first ties of those with a magnitude of least.
type choice[T float] struct {
	values     []T
	indices    []int // of values in the vector; nil if values is the vector
	least      uint64
	ties, size int // size is the number of chosen elements
}

// selectLargest selects the k elements of src with the largest magnitudes, the first of equal
// ones, without zeros. k is at most len(src).
//
// For small k it first samples one element in sampleStride, to estimate a magnitude that
// slightly more than k elements reach. One pass extracts these, and the selection continues
// among them. A wrong estimate costs time only.
func (s *selection[T]) selectLargest(src []T, k int) choice[T] {
	if len(src) >= sampleMin && k <= len(src)/sampleShare {
		if c, ok := s.selectBySample(src, k); ok {
			return c
		}
	}
	return choose(src, nil, k)
}

const (
	sampleStride = 61      // prime, and thus unlikely to match a period of the vector
	sampleMin    = 1 << 12 // shorter vectors are not sampled
	sampleShare  = 8       // nor are vectors if more than one in sampleShare elements is kept
)

// selectBySample is selectLargest with a limit that it estimates from a sample. It reports false if the estimate was wrong.
func (s *selection[T]) selectBySample(src []T, k int) (c choice[T], ok bool) {
	// Four standard deviations above the expected number in the sample.
	expected := float64(k) / sampleStride
	rank := int(expected + 4*math.Sqrt(expected) + 4)
	room := max(2*sampleStride*rank, len(src)/sampleStride+1)
	if cap(s.values) < room {
		s.values, s.indices = make([]T, room), make([]int, room)
	}
	values, indices := s.values[:room], s.indices[:room]

	n := 0
	for i := 0; i < len(src); i += sampleStride {
		values[n] = src[i]
		n++
	}
	guess, _ := threshold(values[:n], rank)
	guess = max(guess, 1) // excludes zeros

	n = 0
	for i, v := range src {
		if magnitude(v) >= guess {
			if n == len(values) {
				return choice[T]{}, false
			}
			values[n], indices[n] = v, i
			n++
		}
	}
	if n < k && guess > 1 {
		return choice[T]{}, false
	}
	return choose(values[:n], indices[:n], min(k, n)), true
}

// choose returns the choice of the k largest of values.
func choose[T float](values []T, indices []int, k int) choice[T] {
	if k == 0 {
		return choice[T]{least: infinity[T]()}
	}
	least, larger := threshold(values, k)
	c := choice[T]{values: values, indices: indices, least: least, ties: k - larger, size: k}
	if least == 0 { // no zeros
		c.ties, c.size = 0, larger
	}
	return c
}

// threshold returns the k-th largest magnitude in src, and the number of larger ones. k is
// from 1 to len(src).
//
// It is a radix selection: it counts magnitudes by their upper bits, which determines the
// upper bits of the k-th largest, and continues with the next bits of the magnitudes that
// share them. It reads src three times for float32 and six times for float64.
func threshold[T float](src []T, k int) (least uint64, larger int) {
	var counts [1 << 11]int
	mask := uint64(0) // the bits of least that are known
	shifts, high := [...]uint{52, 42, 32, 21, 10, 0}, uint(63)
	first := 0
	if sizeOf[T]() == 4 {
		first, high = 3, 31
	}
	for _, shift := range shifts[first:] {
		clear(counts[:])
		low := uint64(1)<<(high-shift) - 1
		for _, v := range src {
			if m := magnitude(v); m&mask == least {
				counts[m>>(shift&63)&low&(1<<11-1)]++
			}
		}
		d := int(low)
		for ; larger+counts[d] < k; d-- {
			larger += counts[d]
		}
		least |= uint64(d) << shift
		mask |= low << shift
		high = shift
	}
	return least, larger
}
