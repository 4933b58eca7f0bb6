//go:build proofs

package plan

import "math"

// everyRoot is up to how many ranks the tests prove plans for every root.
const everyRoot = math.MaxInt
