//go:build race

package worldtest

// RaceDetector reports whether the race detector is on. It makes everything several
// times as slow, so the largest tests do less.
const RaceDetector = true
