package compress

import (
	"fmt"
	"math"
)

// defaultRatio is the ratio of TopK and RandomK if neither K nor Ratio is set.
const defaultRatio = 0.01

// kept returns the number of elements, of n, that a compressor with these fields keeps.
func (kd kind) kept(k int, ratio float64, n int) (int, error) {
	switch {
	case k < 0:
		return 0, fmt.Errorf("compress: %s: %w: K is %d, must not be negative", kd, ErrConfig, k)
	case k > 0 && ratio != 0:
		return 0, fmt.Errorf("compress: %s: %w: K is %d and Ratio is %v, only one of them may be set", kd, ErrConfig, k, ratio)
	case !(ratio >= 0 && ratio <= 1):
		return 0, fmt.Errorf("compress: %s: %w: Ratio is %v, must be between 0 and 1", kd, ErrConfig, ratio)
	case k > 0:
		return min(k, n), nil
	case ratio == 0:
		ratio = defaultRatio
	}
	return min(max(int(math.Round(ratio*float64(n))), 1), n), nil
}
