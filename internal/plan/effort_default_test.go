//go:build !proofs

package plan

// These proofs take some seconds. "make proofs" proves every size up to 130.

// Tests prove plans for every size up to everySize and for largeSizes, and for every
// root up to everyRoot ranks. They mutate plans of mutantSizes.
const (
	everySize = 34
	everyRoot = 24
)

var (
	largeSizes  = [...]int{48, 49, 64, 65, 97, 128, 129}
	mutantSizes = [...]int{1, 2, 3, 4, 5, 6}
)

// Plans in place are proved for every size up to inPlaceSize, expressions compared
// up to expressionSize, and plans carried out for executedSizes.
const (
	inPlaceSize    = 24
	expressionSize = 33
)

var executedSizes = [...]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 31}

// Hierarchical plans are proved for all ways to divide up to everyPartition
// ranks among hosts, for hosts of all sizes up to everyShape ranks, and for
// randomGroupings beyond.
const (
	everyPartition  = 6
	everyShape      = 12
	randomGroupings = 40
)
