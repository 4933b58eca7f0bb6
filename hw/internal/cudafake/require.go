package cudafake

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Required reports whether the environment variable NEXAR_REQUIRE, a list with commas, has a word.
func Required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("NEXAR_REQUIRE"), ","), what)
}

// Skip skips a test with a reason, or fails it if NEXAR_REQUIRE has the word.
func Skip(tb testing.TB, what, reason string) {
	tb.Helper()
	if Required(what) {
		tb.Fatalf("NEXAR_REQUIRE has %s: %s", what, reason)
	}
	tb.Skipf("%s (NEXAR_REQUIRE=%s makes this a failure)", reason, what)
}
