//go:build race

package worldtest

// RaceDetector reports whether the race detector is on. It makes tests several times slower, so
// long tests run fewer trials.
const RaceDetector = true
