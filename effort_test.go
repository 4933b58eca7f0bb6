package nexar

import "os"

// trialsVariable, set to "all", has tests that try combinations try all of them,
// as "make conformance" does.
const trialsVariable = "TRIALS"

func allTrials() bool { return os.Getenv(trialsVariable) == "all" }

// thinned is one in how many trials of a test are made, where it would be one in
// sample if there were time for all of them.
func thinned(sample uint64) uint64 {
	switch {
	case allTrials():
		return sample
	case raceDetector:
		return 192 * sample
	}
	return 4 * sample
}
