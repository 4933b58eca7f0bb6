package campaign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Schedule says which sizes are measured, and how often.
type Schedule struct {
	Sizes  []int   // bytes
	Budget float64 // seconds for an operation at one size
}

// DefaultSizes are powers of 8 up to 64 MiB.
func DefaultSizes() []int {
	return []int{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20}
}

// QuickSizes have one size of every kind.
func QuickSizes() []int { return []int{8, 4 << 10, 256 << 10, 8 << 20} }

// ParseSizes reads sizes as people write them: "8,64KiB,1MiB".
func ParseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := humanize.ParseBytes(part)
		if err != nil || n < elem || n > bytesMax || n%elem != 0 {
			return nil, fmt.Errorf("size %q: not a multiple of %d bytes up to 1 GiB, such as 8, 64KiB or 1MiB", part, elem)
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

// iterations are how often a size is run at the most, the same for all
// systems, and how often before that to warm up. One more run checks the
// result.
func iterations(bytes int) (iters, warm int) {
	for _, row := range []struct{ bytes, iters, warm int }{
		{4 << 10, 500, 20}, {64 << 10, 200, 10}, {1 << 20, 60, 3}, {8 << 20, 15, 1}, {bytesMax, 5, 0},
	} {
		if bytes <= row.bytes {
			return row.iters, row.warm
		}
	}
	panic(fmt.Sprintf("campaign: a size of %d bytes", bytes))
}

// points is the schedule as programs read it.
func (s Schedule) points() string {
	var parts []string
	for _, bytes := range s.Sizes {
		iters, warm := iterations(bytes)
		parts = append(parts, fmt.Sprintf("%d:%d:%d", bytes, iters, warm))
	}
	return strings.Join(parts, ",")
}
