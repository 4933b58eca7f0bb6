package require

import "testing"

// NoRace skips a test that takes long under the race detector and adds no kind of goroutine, for the reason, unless
// TRIALS is all. Without the detector it does nothing. A package without any test for the detector has the
// line "//race:none REASON" in one of its test files instead: "make race" does not compile it.
func NoRace(t testing.TB, reason string) {
	t.Helper()
	if Race && !AllTrials() {
		t.Skipf("left out under the race detector: %s; TRIALS=all runs it", reason)
	}
}
