// Package worldtest creates worlds of ranks in one process for tests of the whole: over
// every transport, over a simulated network, and in fake time.
package worldtest
