// Package require lets a test state its requirements of the machine.
//
// Have skips the test where a requirement is missing, and prints the reason. The variable
// NEXAR_REQUIRE lists requirements, as in "netns,root", whose absence fails the test
// instead. Continuous integration sets it.
//
// Both functions are called by the goroutine of the test, as testing.T.Skip is.
package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// variable lists the requirements that must not be missing, separated by commas.
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
