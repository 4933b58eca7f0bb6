package bucket

// Split returns the buckets of vectors with some lengths, as a Packer with this room makes them, in their
// order: each is a list of indices of vectors. If all vectors are empty, there is one empty bucket.
func Split(lengths []int, room int) (buckets [][]int) {
	var open []int
	size := 0
	flush := func() {
		if len(open) > 0 {
			buckets = append(buckets, open)
		}
		open, size = nil, 0
	}
	for i, n := range lengths {
		switch {
		case n == 0:
			continue
		case 2*n > room:
			buckets = append(buckets, []int{i})
			continue
		case size+n > room:
			flush()
		}
		open = append(open, i)
		size += n
	}
	flush()
	if len(buckets) == 0 {
		buckets = [][]int{nil}
	}
	return buckets
}
