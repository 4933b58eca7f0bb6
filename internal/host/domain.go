package host

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// nodeDomain is added to the number of a NUMA node, so that it differs from that of a cache.
const nodeDomain = 1 << 15

// domainOf returns the domain of processors: the first processor of their last-level cache, plus 1,
// or nodeDomain plus their NUMA node, if caches are unknown. It is 0 if they are in several domains.
// System is the directory /sys/devices/system/cpu of Linux.
func domainOf(system fs.FS, processors []int) uint16 {
	domain := uint16(0)
	for _, processor := range processors {
		d := cacheOf(system, processor)
		if d == 0 {
			d = nodeOf(system, processor)
		}
		if d == 0 || domain != 0 && d != domain {
			return 0
		}
		domain = d
	}
	return domain
}

// cacheOf returns the first processor that shares the last-level cache of a processor, plus 1.
func cacheOf(system fs.FS, processor int) uint16 {
	first, last := uint16(0), 0
	for index := 0; ; index++ {
		dir := fmt.Sprintf("cpu%d/cache/index%d/", processor, index)
		level, ok := readNumber(system, dir+"level")
		if !ok {
			return first
		}
		// The list has the form 0-7,64-71.
		if list, err := fs.ReadFile(system, dir+"shared_cpu_list"); err == nil && level > last {
			end := slices.IndexFunc(list, func(b byte) bool { return b < '0' || b > '9' })
			if n, err := strconv.ParseUint(string(list[:max(0, end)]), 10, 15); err == nil {
				first, last = uint16(n)+1, level
			}
		}
	}
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
