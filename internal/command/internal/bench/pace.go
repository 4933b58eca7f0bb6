package bench

import "time"

const (
	// runsMin is the least number of runs of a size, even if the time is too short for
	// them: fewer have no meaningful median.
	runsMin = 3
	// runsMax is the largest number of runs: more would hardly change the result.
	runsMax = 1001
	// From warmRunsMin runs on, the first is not counted. Of fewer runs it is too large a
	// part to be discarded.
	warmRunsMin = 6

	// Limits for comparisons: the number of rounds and of runs in a turn. In a round each
	// algorithm has one turn. Longer turns come before more rounds,
	// since the first run after another algorithm is not counted.
	roundsMin = 5
	roundsMax = 15
	turnMin   = 4
	turnMax   = 101
)

// A pace divides the remaining time among the remaining cells.
type pace struct {
	end   time.Time // of the time for all cells
	fixed int       // runs of every cell; 0: as many as the time allows
}

// share returns the time for the next of left cells.
func (p pace) share(now time.Time, left int) time.Duration {
	return p.end.Sub(now) / time.Duration(left)
}

// more returns the number of further runs of a cell, or 0 for none. The cell has the time share,
// and done runs have taken the time took. The result is at most done, since a few runs are a poor
// estimate of many.
func (p pace) more(done int, took, share time.Duration) int {
	switch {
	case p.fixed > 0:
		return max(p.fixed-done, 0)
	case done < runsMin:
		return runsMin - done
	}
	each := max(took/time.Duration(done), 1)
	return max(0, min(int((share-took)/each), done, runsMax-done))
}

// rounds returns the number of rounds of a comparison, and of runs in each turn, for the
// time left. sweep is the time of a round with one run in each turn.
func (p pace) rounds(sweep, left time.Duration) (rounds, runs int) {
	if p.fixed > 0 {
		return roundsMin, p.fixed
	}
	fit := int(max(0, left) / max(1, sweep))
	rounds = min(max(fit/turnMin, roundsMin), roundsMax)
	return rounds, min(max(fit/rounds, 1), turnMax)
}
