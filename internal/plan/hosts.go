package plan

// Hosts says which ranks are on one host. The zero Hosts knows of none.
type Hosts struct {
	of    []int   // the host of each rank
	ranks [][]int // of each host, ascending; hosts are in the order of their first ranks
}

// HostsOf makes Hosts of a name for each rank: ranks of one host have the same.
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

// Size is the number of ranks.
func (h Hosts) Size() int { return len(h.of) }

// Count is the number of hosts.
func (h Hosts) Count() int { return len(h.ranks) }

// Same says whether two ranks are on one host.
func (h Hosts) Same(a, b int) bool { return h.of[a] == h.of[b] }

// Crowded reports whether there are several hosts, with several ranks on at least one, so that the
// choice of peers affects the cost.
func (h Hosts) Crowded() bool { return h.Count() > 1 && h.Count() < h.Size() }

// Most is the number of ranks on the host that has most.
func (h Hosts) Most() int {
	most := 0
	for _, ranks := range h.ranks {
		most = max(most, len(ranks))
	}
	return most
}

// least is the number of ranks on the host that has fewest.
func (h Hosts) least() int {
	least := h.Size()
	for _, ranks := range h.ranks {
		least = min(least, len(ranks))
	}
	return least
}

// Heads are the first ranks of the first so many hosts.
func (h Hosts) Heads(hosts int) (ranks []int) {
	for _, list := range h.ranks[:min(hosts, h.Count())] {
		ranks = append(ranks, list[0])
	}
	return ranks
}

// First are Hosts like these with the first so many hosts, and on each of them
// the first so many ranks, in the order that they have here.
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

// inOrder says that the ranks of each host are neighbours, so that sums over
// hosts can be in the order of the ranks.
func (h Hosts) inOrder() bool {
	for rank := 1; rank < h.Size(); rank++ {
		if h.of[rank] < h.of[rank-1] {
			return false
		}
	}
	return true
}

// canonical says that all hosts are groups of the tree of merges, and the
// hosts are merged along it as if each were a rank.
func (h Hosts) canonical() bool {
	most, count := h.Most(), h.Count()
	return h.inOrder() && h.least() == most && (most == 1 || most&(most-1) == 0 && count&(count-1) == 0)
}
