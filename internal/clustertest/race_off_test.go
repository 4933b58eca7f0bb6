//go:build !race

package clustertest

// race says that the race detector does not look on.
const race = false
