package campaign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Schedule has the sizes to measure and the time for each.
type Schedule struct {
	Sizes  []int   // bytes
	Budget float64 // seconds for an operation at one size
}

// DefaultSizes returns the powers of 8 up to 16 MiB, and 64 MiB.
func DefaultSizes() []int {
	return []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20}
}

// QuickSizes returns a few sizes from 8 bytes to 8 MiB.
func QuickSizes() []int { return []int{8, 4 << 10, 256 << 10, 8 << 20} }

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

// iterations returns the maximum number of timed runs of a size and the number of warm-up runs,
// the same for all systems. One more run checks the result.
func iterations(bytes int) (iters, warm int) {
	for _, row := range []struct{ bytes, iters, warm int }{
		{4 << 10, 500, 20}, {64 << 10, 200, 10}, {1 << 20, 60, 3}, {8 << 20, 15, 1}, {bytesMax, 5, 0},
	} {
		if bytes <= row.bytes {
			return row.iters, row.warm
		}
	}
	panic(fmt.Sprintf("campaign: size of %d bytes exceeds the maximum of %d", bytes, bytesMax))
}

// points formats the schedule for the flag -points of the programs.
func (s Schedule) points() string {
	var parts []string
	for _, bytes := range s.Sizes {
		iters, warm := iterations(bytes)
		parts = append(parts, fmt.Sprintf("%d:%d:%d", bytes, iters, warm))
	}
	return strings.Join(parts, ",")
}
