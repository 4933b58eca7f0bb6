package plan

import (
	"math"
	"slices"
	"testing"
)

// TestGroups: groups have neighboring ranks, sizes that differ by at most one, and the same size if the
// number of ranks is a power of two.
func TestGroups(t *testing.T) {
	for size := 1; size <= 300; size++ {
		h := Groups(size)
		if h.Size() != size || !h.inOrder() || h.Most()-h.least() > 1 {
			t.Errorf("%d ranks: %v", size, h)
		}
		if h.Crowded() != (size >= groupedFrom) {
			t.Errorf("%d ranks: %d groups", size, h.Count())
		}
		if size&(size-1) == 0 && !h.canonical() {
			t.Errorf("%d ranks: %d groups of %d to %d", size, h.Count(), h.least(), h.Most())
		}
		if root := math.Sqrt(float64(size)); h.Crowded() && math.Abs(float64(h.Count())-root) > 6 {
			t.Errorf("%d ranks: %d groups", size, h.Count())
		}
	}
}

// TestGroupsWithin: a group has ranks of one domain, groups are not larger than without domains, and
// domains do not count if one is unknown.
func TestGroupsWithin(t *testing.T) {
	for _, test := range []struct {
		ranks, domains int
		dealt          bool
		count          int
	}{
		{64, 2, false, 8}, {64, 4, true, 8}, {64, 16, false, 16}, {64, 1, false, 8}, {100, 3, true, 12}, {16, 2, false, 1},
	} {
		domains := make([]int, test.ranks)
		for rank := range domains {
			domains[rank] = 1 + rank*test.domains/test.ranks
			if test.dealt {
				domains[rank] = 1 + rank%test.domains
			}
		}
		h := GroupsWithin(domains)
		if h.Size() != test.ranks || h.Count() != test.count || h.Most() > Groups(test.ranks).Most() && test.ranks >= groupedFrom {
			t.Errorf("%d ranks in %d domains: %d groups of up to %d", test.ranks, test.domains, h.Count(), h.Most())
		}
		for rank := range domains {
			for other := range domains {
				if h.Same(rank, other) && domains[rank] != domains[other] && test.ranks >= groupedFrom {
					t.Fatalf("ranks %d and %d are in one group, in domains %d and %d", rank, other, domains[rank], domains[other])
				}
			}
		}
		domains[1] = 0
		if got, want := GroupsWithin(domains), Groups(test.ranks); !slices.Equal(got.of, want.of) {
			t.Errorf("%d ranks, one in no domain: %v, want %v", test.ranks, got.of, want.of)
		}
	}
}
