//go:build race

package membership

// worldsAlways is the number of simulated worlds without WORLDS. The race detector
// makes each about ten times as slow, and has little to find: a world has a single
// goroutine.
const worldsAlways = 2_000
