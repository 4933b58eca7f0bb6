package host

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// nodeDomain is added to the number of a NUMA node, so that it differs from that of a cache.
const nodeDomain = 1 << 15

// domainOf returns the domain of processors: the first processor of their last-level cache, plus 1,
// or nodeDomain plus their NUMA node, if caches are unknown. It is 0 if they are in several domains.
// System is the directory /sys/devices/system/cpu of Linux.
func domainOf(system fs.FS, processors []int) uint16 {
	domain, shared := uint16(0), "" // shared are the processors of the last cache
	for _, processor := range processors {
		if isListed(shared, processor) {
			continue
		}
		var d uint16
		if d, shared = cacheOf(system, processor); d == 0 {
			d = nodeOf(system, processor)
		}
		if d == 0 || domain != 0 && d != domain {
			return 0
		}
		domain = d
	}
	return domain
}

// cacheOf returns the first processor that shares the last-level cache of a processor, plus 1, and the list of all
// of them. The result is 0 if the cache is unknown.
func cacheOf(system fs.FS, processor int) (first uint16, shared string) {
	cache, last := "", 0
	for index := 0; ; index++ {
		dir := fmt.Sprintf("cpu%d/cache/index%d/", processor, index)
		level, ok := readNumber(system, dir+"level")
		if !ok {
			break
		}
		if level > last {
			cache, last = dir, level
		}
	}
	list, err := fs.ReadFile(system, cache+"shared_cpu_list")
	if err != nil {
		return 0, ""
	}
	shared = strings.TrimSpace(string(list))
	end := strings.IndexFunc(shared+",", func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.ParseUint(shared[:end], 10, 15)
	if err != nil {
		return 0, ""
	}
	return uint16(n) + 1, shared
}

// isListed reports whether a list of processors of the form 0-7,64-71 contains a processor.
func isListed(list string, processor int) bool {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.Atoi(from)
		hi, errTo := strconv.Atoi(to)
		if err == nil && errTo == nil && lo <= processor && processor <= hi {
			return true
		}
	}
	return false
}

// nodeOf returns nodeDomain plus the NUMA node of a processor.
func nodeOf(system fs.FS, processor int) uint16 {
	names, _ := fs.Glob(system, fmt.Sprintf("cpu%d/node[0-9]*", processor))
	if len(names) != 1 {
		return 0
	}
	n, err := strconv.ParseUint(names[0][strings.LastIndex(names[0], "node")+len("node"):], 10, 14)
	if err != nil {
		return 0
	}
	return nodeDomain + uint16(n)
}

func readNumber(system fs.FS, name string) (n int, ok bool) {
	b, err := fs.ReadFile(system, name)
	if err != nil {
		return 0, false
	}
	n, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}
