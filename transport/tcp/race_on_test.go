//go:build race

package tcp

// raceEnabled: under the race detector sync.Pool drops some of its values.
const raceEnabled = true
