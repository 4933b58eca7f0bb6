//go:build !proofs

package plan

// everyRoot is up to how many ranks the tests prove plans for every root.
const everyRoot = 24
