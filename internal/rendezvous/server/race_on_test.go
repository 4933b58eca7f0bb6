//go:build race

package server

// raceEnabled says that the race detector slows everything down.
const raceEnabled = true
