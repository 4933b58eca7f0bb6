//go:build race

package worldtest

// RaceDetector reports whether the race detector is on. It slows tests down several times,
// so the largest ones do less.
const RaceDetector = true
