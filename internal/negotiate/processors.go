package negotiate

import "slices"

// processors returns the number of processors of a host. Launchers bind ranks to neighboring processors, so profiles have ranges. If
// some processors have more ranks than others in every placement, it is the number with which all ranks would be as crowded as on
// these.
func processors(profiles []profile) int {
	type set struct{ first, end int }
	ranks := len(profiles)
	sets := make([]set, ranks)
	for i, s := range profiles {
		sets[i] = set{int(s.First), int(s.First) + int(s.Count)}
	}
	slices.SortFunc(sets, func(a, b set) int { return a.end - b.end })
	used := make(map[int]struct{})
	firsts := make(map[int]struct{})
	for _, s := range sets {
		firsts[s.first] = struct{}{}
		for cpu := s.first; cpu < s.end; cpu++ {
			used[cpu] = struct{}{}
		}
	}
	fewest := len(used)
	for first := range firsts {
		within := 0 // the ranks that are confined to the processors from first to the end of the current set
		for _, s := range sets {
			if s.first >= first {
				within++
				fewest = min(fewest, (s.end-first)*ranks/within)
			}
		}
	}
	return max(fewest, 1)
}
