//go:build !race

package cluster

// race says that the race detector does not look on.
const race = false
