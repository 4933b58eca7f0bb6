package compress

import (
	"fmt"
	"math"
)

// defaultRatio is what share of a vector TopK and RandomK keep if they are not
// told.
const defaultRatio = 0.01

// kept is how many of n elements a Compressor keeps that has these fields.
func (kd kind) kept(k int, ratio float64, n int) (int, error) {
	switch {
	case k < 0:
		return 0, fmt.Errorf("compress: %s: %w: K is %d", kd, ErrConfig, k)
	case k > 0 && ratio != 0:
		return 0, fmt.Errorf("compress: %s: %w: K is %d and Ratio %v, but only one of them counts", kd, ErrConfig, k, ratio)
	case !(ratio >= 0 && ratio <= 1):
		return 0, fmt.Errorf("compress: %s: %w: Ratio is %v, which is not between 0 and 1", kd, ErrConfig, ratio)
	case k > 0:
		return min(k, n), nil
	case ratio == 0:
		ratio = defaultRatio
	}
	return min(max(int(math.Round(ratio*float64(n))), 1), n), nil
}
