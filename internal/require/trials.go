package require

import "os"

// An Extent says how many of its trials a test with many trials runs.
type Extent int

const (
	Few  Extent = iota // go test ./...: a selection, so that all tests end within minutes
	Most               // TRIALS=most, as in make unit
	All                // TRIALS=all: every combination
)

// Trials returns the extent that the variable TRIALS selects, [Few] without it.
func Trials() Extent {
	switch os.Getenv("TRIALS") {
	case "all":
		return All
	case "most":
		return Most
	}
	return Few
}
