//go:build !race

package nexar

// raceDetector says that the race detector makes everything several times as
// slow, so that the largest tests do less.
const raceDetector = false
