//go:build race

package rendezvous

// raceEnabled says that the race detector slows everything down.
const raceEnabled = true
