//go:build !race

package cluster

// race reports whether the race detector is on.
const race = false
