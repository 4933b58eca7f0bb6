package plan

// Hosts is the distribution of ranks over hosts. The zero Hosts contains no ranks.
type Hosts struct {
	of    []int   // the host of each rank
	ranks [][]int // of each host, ascending; hosts are in the order of their first ranks
}

// HostsOf returns the Hosts for a name per rank: ranks on the same host have the same name.
func HostsOf(names []string) Hosts {
	var h Hosts
	number := make(map[string]int)
	for rank, name := range names {
		i, known := number[name]
		if !known {
			i = len(h.ranks)
			number[name] = i
			h.ranks = append(h.ranks, nil)
		}
		h.of = append(h.of, i)
		h.ranks[i] = append(h.ranks[i], rank)
	}
	return h
}

// EvenHosts returns the Hosts of a number of ranks, in their order, with perHost ranks on each host. The last host may have
// fewer.
func EvenHosts(ranks, perHost int) Hosts {
	h := Hosts{of: make([]int, ranks), ranks: make([][]int, (ranks+perHost-1)/perHost)}
	all := make([]int, ranks)
	for rank := range ranks {
		all[rank], h.of[rank] = rank, rank/perHost
	}
	for host := range h.ranks {
		first, next := host*perHost, min((host+1)*perHost, ranks)
		h.ranks[host] = all[first:next:next]
	}
	return h
}

// Size returns the number of ranks.
func (h Hosts) Size() int { return len(h.of) }

// Count returns the number of hosts.
func (h Hosts) Count() int { return len(h.ranks) }

// Same reports whether two ranks are on one host.
func (h Hosts) Same(a, b int) bool { return h.of[a] == h.of[b] }

// Crowded reports whether there are several hosts, with several ranks on at least one, so that the
// choice of peers affects the cost.
func (h Hosts) Crowded() bool { return h.Count() > 1 && h.Count() < h.Size() }

// Most returns the largest number of ranks on a host.
func (h Hosts) Most() int {
	most := 0
	for _, ranks := range h.ranks {
		most = max(most, len(ranks))
	}
	return most
}

// least returns the smallest number of ranks on a host.
func (h Hosts) least() int {
	least := h.Size()
	for _, ranks := range h.ranks {
		least = min(least, len(ranks))
	}
	return least
}

// even reports whether all hosts have the same number of ranks.
func (h Hosts) even() bool { return h.least() == h.Most() }

// FirstRanks returns the first rank of each of the first hosts, at most the given number.
func (h Hosts) FirstRanks(hosts int) (ranks []int) {
	for _, list := range h.ranks[:min(hosts, h.Count())] {
		ranks = append(ranks, list[0])
	}
	return ranks
}

// First returns Hosts with the first hosts, and the first ranks on each of them, in the order
// of h.
func (h Hosts) First(hosts, ranks int) Hosts {
	first := Hosts{ranks: make([][]int, min(hosts, h.Count()))}
	for _, host := range h.of {
		if host < hosts && len(first.ranks[host]) < ranks {
			first.ranks[host] = append(first.ranks[host], first.Size())
			first.of = append(first.of, host)
		}
	}
	return first
}

// inOrder reports whether the ranks of each host are neighbors, so that sums over hosts can be
// in the order of the ranks.
func (h Hosts) inOrder() bool {
	for rank := 1; rank < h.Size(); rank++ {
		if h.of[rank] < h.of[rank-1] {
			return false
		}
	}
	return true
}

// canonical reports whether all hosts are groups of the tree of merges, and the hosts are
// merged along it like ranks.
func (h Hosts) canonical() bool {
	most, count := h.Most(), h.Count()
	return h.inOrder() && h.even() && (most == 1 || most&(most-1) == 0 && count&(count-1) == 0)
}
