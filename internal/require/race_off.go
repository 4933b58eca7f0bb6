//go:build !race

package require

// Race reports whether the race detector is on. It makes tests several times slower and take more memory.
const Race = false
