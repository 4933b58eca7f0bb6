package require

import "os"

// AllTrials reports whether TRIALS is all: tests with many trials run every combination, and otherwise a selection, so that all
// tests end within minutes.
func AllTrials() bool { return os.Getenv("TRIALS") == "all" }
