package compress

import "math"

// A selection finds the largest elements of vectors. It keeps its buffers from
// one to the next.
type selection struct {
	values []float32 // candidates
	places []int     // where they are in the vector
}

// A choice is the elements that were selected: of values all that are larger
// than least, and the first ties of those that are equal to it. There are size
// of them.
type choice struct {
	values     []float32
	places     []int // of the values in the vector; nil if values is the vector
	least      uint32
	ties, size int
}

// selectLargest selects the k largest magnitudes of src, the first of those
// that are equal, and no zeros. k is at most len(src).
//
// Where k is small it first looks at one element in sampleStride, to guess a
// magnitude that some more than k elements reach. They are then taken out of
// src in one pass, and selected from. A wrong guess costs time and nothing else.
func (s *selection) selectLargest(src []float32, k int) choice {
	if len(src) >= sampleMin && k <= len(src)/sampleShare {
		if c, ok := s.selectCandidates(src, k); ok {
			return c
		}
	}
	return choose(src, nil, k)
}

const (
	sampleStride = 61      // a prime number, which hardly is the period of a vector
	sampleMin    = 1 << 12 // below that many elements a sample is not worth it,
	sampleShare  = 8       // nor is it for more than one element in so many
)

// selectCandidates is selectLargest by a sample. It is not ok if the sample has
// misled it.
func (s *selection) selectCandidates(src []float32, k int) (c choice, ok bool) {
	// Four standard deviations more than what is expected to be in the sample.
	expected := float64(k) / sampleStride
	rank := int(expected + 4*math.Sqrt(expected) + 4)
	room := max(2*sampleStride*rank, len(src)/sampleStride+1)
	if cap(s.values) < room {
		s.values, s.places = make([]float32, room), make([]int, room)
	}
	values, places := s.values[:room], s.places[:room]

	n := 0
	for i := 0; i < len(src); i += sampleStride {
		values[n] = src[i]
		n++
	}
	guess, _ := threshold(values[:n], rank)
	guess = max(guess, 1) // zeros are not selected

	n = 0
	for i, v := range src {
		if magnitude(v) >= guess {
			if n == len(values) {
				return choice{}, false
			}
			values[n], places[n] = v, i
			n++
		}
	}
	if n < k && guess > 1 {
		return choice{}, false
	}
	return choose(values[:n], places[:n], min(k, n)), true
}

// choose is the choice of the k largest of values.
func choose(values []float32, places []int, k int) choice {
	if k == 0 {
		return choice{least: infinity32}
	}
	c := choice{values: values, places: places, size: k}
	var larger int
	c.least, larger = threshold(values, k)
	c.ties = k - larger
	if c.least == 0 {
		c.ties, c.size = 0, larger
	}
	return c
}

// threshold is the k-th largest magnitude in src, and how many are larger than
// that. k is from 1 to len(src).
//
// This is radix selection. It counts magnitudes by their upper bits, which
// tells what those of the k-th largest are, and goes on with the bits below
// among those that have them. It reads src three times, whatever is in it.
func threshold(src []float32, k int) (least uint32, larger int) {
	var counts [1 << 11]int
	mask := uint32(0) // the bits that are known
	for _, digit := range [...]struct{ shift, values uint32 }{{20, 1 << 11}, {10, 1 << 10}, {0, 1 << 10}} {
		clear(counts[:])
		low := digit.values - 1
		for _, v := range src {
			if m := magnitude(v); m&mask == least {
				counts[(m>>(digit.shift&31)&low)&(1<<11-1)]++
			}
		}
		d := int(low)
		for ; larger+counts[d] < k; d-- {
			larger += counts[d]
		}
		least |= uint32(d) << digit.shift
		mask |= low << digit.shift
	}
	return least, larger
}
