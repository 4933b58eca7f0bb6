package plan

import (
	"fmt"
	"slices"
)

// groupedFrom is the smallest number of ranks that is divided into groups.
const groupedFrom = 17

// Groups divides the ranks of one host into groups of neighbors, for hierarchical algorithms in
// shared memory. There are about as many groups as ranks in each, and groups are of equal size
// if a size close to that divides the number of ranks. Few ranks are a single group.
func Groups(size int) Hosts {
	h := Hosts{of: make([]int, size)}
	count := groupCount(size)
	for i := range count {
		h.ranks = append(h.ranks, nil)
		for rank := i * size / count; rank < (i+1)*size/count; rank++ {
			h.of[rank], h.ranks[i] = i, append(h.ranks[i], rank)
		}
	}
	return h
}

func groupCount(size int) int {
	if size < groupedFrom {
		return 1
	}
	count := 1
	for count*count < size {
		count++
	}
	for _, near := range [...]int{0, 1, -1, 2, -2, 3, -3, 4, -4, 5} {
		if n := count + near; n > 1 && size%n == 0 {
			return n
		}
	}
	return count
}

// GroupsWithin is [Groups] with groups that lie within a domain: a cache, or a NUMA node. Domains
// has the number of the domain of each rank, 0 if the rank is in none or in several; if any is 0,
// domains do not count. A domain with many ranks has several groups.
func GroupsWithin(domains []int) Hosts {
	h := Groups(len(domains))
	if len(domains) < groupedFrom || slices.Contains(domains, 0) {
		return h
	}
	most, ranks := h.Most(), make(map[int]int) // by domain
	for _, domain := range domains {
		ranks[domain]++
	}
	seen, names := make(map[int]int), make([]string, len(domains))
	for rank, domain := range domains {
		groups := (ranks[domain] + most - 1) / most
		names[rank] = fmt.Sprintf("%d/%d", domain, seen[domain]*groups/ranks[domain])
		seen[domain]++
	}
	return HostsOf(names)
}
