// Package require lets a test say what it needs of the machine it runs on.
//
// Have skips the test where that is missing, and prints why. Nothing is skipped
// silently: whoever means to have the thing lists its name in NEXAR_REQUIRE,
// "netns,root", and then a test that cannot run fails. Continuous integration
// does so.
//
// Both functions are called by the goroutine of the test, as testing.T.Skip is.
package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// variable holds the names of what must not be missing, with commas between.
const variable = "NEXAR_REQUIRE"

// Have goes on with the test if ok. Otherwise it skips the test for the given
// reason, or fails it if NEXAR_REQUIRE lists name.
func Have(t testing.TB, name string, ok bool, reason string) {
	t.Helper()
	switch {
	case ok:
	case listed(name):
		t.Fatalf("%s lists %q, but this test cannot have it: %s", variable, name, reason)
	default:
		t.Skipf("needs %q: %s; with %s=%s this is a failure", name, reason, variable, name)
	}
}

// Root is Have for tests that only the superuser can run, under the name
// "root".
func Root(t testing.TB) {
	t.Helper()
	Have(t, "root", os.Geteuid() == 0, "the test changes the system and must be run by root")
}

func listed(name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(variable), ","), func(s string) bool {
		return strings.TrimSpace(s) == name
	})
}
