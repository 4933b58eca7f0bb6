//go:build race

package server

// raceEnabled says that the race detector is on.
const raceEnabled = true
