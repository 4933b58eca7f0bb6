//go:build race && !proofs

package plan

// The race detector makes a proof about ten times as slow and finds nothing, because a
// single goroutine makes the plans and proves them.

// Tests prove plans for every size up to everySize and for largeSizes, and for every
// root up to everyRoot ranks. They mutate plans of mutantSizes.
const (
	everySize = 34
	everyRoot = 24
)

var (
	largeSizes  = [...]int{64}
	mutantSizes = [...]int{1, 2, 3, 5}
)

// Plans in place are proved for every size up to inPlaceSize, expressions compared
// up to expressionSize, and plans carried out for executedSizes.
const (
	inPlaceSize    = 17
	expressionSize = 17
)

var executedSizes = [...]int{1, 2, 3, 5, 8, 13}

// Hierarchical plans are proved for all ways to divide up to everyPartition
// ranks among hosts, for hosts of all sizes up to everyShape ranks, and for
// randomGroupings beyond.
const (
	everyPartition  = 4
	everyShape      = 7
	randomGroupings = 4
)
