//go:build !race

package membership

// worldsAlways is how many simulated worlds there are without WORLDS.
const worldsAlways = 20_000
