//go:build race

package cluster

// race says that the race detector looks on, which makes everything several
// times as slow, and as large.
const race = true
