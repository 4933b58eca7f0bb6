// Package require declares the requirements of a test on the machine.
//
// [Have] skips the test if a requirement is missing, with the reason. The variable NEXAR_REQUIRE
// lists requirements, such as "netns,root"; if one of these is missing the test fails instead.
// Continuous integration sets it.
//
// Like testing.T.Skip, both functions must be called on the goroutine of the test.
package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// variable contains the requirements that must not be missing, separated by commas.
const variable = "NEXAR_REQUIRE"

// Have returns if ok. Otherwise it skips the test with reason or, if NEXAR_REQUIRE lists name, fails
// it.
func Have(t testing.TB, name string, ok bool, reason string) {
	t.Helper()
	switch {
	case ok:
	case listed(name):
		t.Fatalf("%s lists %q, which is missing: %s", variable, name, reason)
	default:
		t.Skipf("needs %q: %s; %s=%s makes this a failure", name, reason, variable, name)
	}
}

// Root is [Have] with the requirement "root", for tests that only the superuser can run.
func Root(t testing.TB) {
	t.Helper()
	Have(t, "root", os.Geteuid() == 0, "the test changes the system and must be run by root")
}

func listed(name string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(variable), ","), func(s string) bool {
		return strings.TrimSpace(s) == name
	})
}
