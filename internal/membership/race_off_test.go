//go:build !race

package membership

// worldsAlways is the number of simulated worlds without WORLDS.
const worldsAlways = 5_000
