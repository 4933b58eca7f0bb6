package bucket

// Split returns the buckets of vectors with some lengths, in the order in which they begin: each is a list of indices of vectors.
// A vector that is too long to copy has a bucket of its own. If all vectors are empty, there is one empty bucket.
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
		case isLong(n, room):
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

func isLong(length, room int) bool { return 2*length > room }
