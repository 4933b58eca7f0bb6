//go:build race

package seed

// raceEnabled says that the race detector slows everything down.
const raceEnabled = true
