package poll

import (
	"slices"
	"testing"
)

// TestGiveWay: of any two ranks on one processor one moves, if links report the processors.
func TestGiveWay(t *testing.T) {
	machine := []int{1, 2, 4, 7}
	for _, test := range []struct {
		rank, unlocated int // the link to unlocated reports no processor
		before          []int
		ranks           int
	}{
		{1, -1, nil, 4},
		{2, -1, []int{1}, 4},
		{7, -1, []int{1, 2, 4}, 4},
		{7, 2, []int{1, 4}, 3},
		{4, 7, []int{1, 2}, 3},
	} {
		before, ranks := ranksBefore(test.rank, machine, func(rank int) bool { return rank != test.unlocated })
		if !slices.Equal(before, test.before) || ranks != test.ranks {
			t.Errorf("rank %d, but not %d: gives way to %v of %d, want %v of %d", test.rank, test.unlocated, before, ranks, test.before, test.ranks)
		}
	}
}
