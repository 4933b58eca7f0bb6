//go:build race

package cluster

// race reports whether the race detector is on, which multiplies time and memory.
const race = true
