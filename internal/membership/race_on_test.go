//go:build race

package membership

// worldsAlways is how many simulated worlds there are without WORLDS. The race
// detector makes each about ten times as slow, and has little to find: a world has
// a single goroutine.
const worldsAlways = 2_000
