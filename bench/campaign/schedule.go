package campaign

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Schedule has the sizes to measure and the time for each.
type Schedule struct {
	Sizes  []int   // bytes
	Budget float64 // seconds for an operation at one size in one turn
}

// warmth is the part of the budget that a system may run before, without being measured.
const warmth = 0.1

// ParseSizes parses a list of sizes such as "8,64KiB,1MiB". It returns them sorted, without
// duplicates.
func ParseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := humanize.ParseBytes(part)
		if err != nil || n < elem || n > bytesMax || n%elem != 0 {
			return nil, fmt.Errorf("size %q: must be a multiple of %d bytes up to 1 GiB, such as 8, 64KiB or 1MiB", part, elem)
		}
		sizes = append(sizes, int(n))
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

const (
	elem     = 4 // bytes of a float32
	bytesMax = 1 << 30
)

// flags returns the flags of the programs for an operation.
func (s Schedule) flags(op string) []string {
	var sizes []string
	for _, bytes := range s.Sizes {
		sizes = append(sizes, strconv.Itoa(bytes))
	}
	return []string{
		"-ops", op, "-sizes", strings.Join(sizes, ","), "-untouched", "1",
		"-budget", fmt.Sprint(s.Budget), "-warm", fmt.Sprint(s.Budget * warmth),
	}
}

// firstSecond returns the flags that measure messages of 8 B in the first second.
func firstSecond() []string { return []string{"-ops", "send_recv", "-sizes", "8", "-budget", "1"} }
