// Package worldtest forms worlds of ranks in one process, for tests of the public API over
// every transport, over a simulated network, and in fake time.
package worldtest
