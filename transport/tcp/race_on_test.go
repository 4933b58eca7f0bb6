//go:build race

package tcp

// raceEnabled: under the race detector sync.Pool drops some of what it is given.
const raceEnabled = true
