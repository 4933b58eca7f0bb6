package require

import (
	"fmt"
	"iter"
	"os"
	"strconv"
	"testing"
)

// Worlds returns the random seeds of the simulated worlds of a test: few of them, or as many as the variable of the environment says. FIRST is
// the first one, 0 by default. A run with the variable prints its progress.
func Worlds(variable string, few uint64) iter.Seq[uint64] {
	first, _ := strconv.ParseUint(os.Getenv("FIRST"), 10, 64)
	worlds, err := strconv.ParseUint(os.Getenv(variable), 10, 64)
	isLong := err == nil
	if !isLong {
		worlds = few
	}
	return func(yield func(uint64) bool) {
		for n := uint64(1); n <= worlds; n++ {
			if !yield(first + n - 1) {
				return
			}
			if isLong && n%100 == 0 {
				fmt.Fprintf(os.Stderr, "%d of %d worlds\n", n, worlds)
			}
		}
	}
}

// Report logs the report of a test, and writes it to the file that REPORT names, if it is set.
func Report(t *testing.T, report string) {
	t.Helper()
	t.Log("\n" + report)
	if path := os.Getenv("REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
			t.Error(err)
		}
	}
}
