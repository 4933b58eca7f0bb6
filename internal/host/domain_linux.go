package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// Domain identifies the last-level cache, or else the NUMA node, of all processors on which this
// process may run. It is 0 if they are in several, or if that is unknown.
func Domain() uint16 {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return 0
	}
	var processors []int
	for processor := 0; len(processors) < allowed.Count() && processor < len(allowed)*64; processor++ {
		if allowed.IsSet(processor) {
			processors = append(processors, processor)
		}
	}
	return domainOf(os.DirFS("/sys/devices/system/cpu"), processors)
}
