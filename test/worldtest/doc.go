// Package worldtest makes worlds of ranks in one process for the tests of the whole:
// over every transport, over a simulated network, and in fake time.
package worldtest
