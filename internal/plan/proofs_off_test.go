//go:build !proofs

package plan

// everyRoot is how many moves the plans of all ranks for all roots may have, for
// the tests to prove them all.
const everyRoot = 250_000
