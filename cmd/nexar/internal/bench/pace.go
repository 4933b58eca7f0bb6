package bench

import "time"

const (
	// runsMin is how often every size is measured, however little time there
	// is: the median of fewer would be no median.
	runsMin = 3
	// runsMax is after how many runs more would say nothing new.
	runsMax = 1001
	// warmRunsMin is from how many runs on the first one does not count.
	// With fewer it takes too large a share of the time to be thrown away.
	warmRunsMin = 6

	// In a comparison of algorithms every one has at least roundsMin turns,
	// however little time there is, and several runs in each rather than more
	// turns: the first after another algorithm does not count.
	roundsMin = 5
	roundsMax = 15
	turnMin   = 4
	turnMax   = 101
)

// A pace spreads the time there is over the cells that are left.
type pace struct {
	end   time.Time // of the time for all cells
	fixed int       // runs of every cell; 0 if the time decides
}

// share is the time for the next of cells that are left.
func (p pace) share(now time.Time, left int) time.Duration {
	return p.end.Sub(now) / time.Duration(left)
}

// more returns the number of further runs of a cell after done runs that took took, if its
// share of the time is share; 0 ends the cell. It returns at most done, since a few runs say
// little about the next ones.
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

// rounds is how many rounds of a comparison there are, and how many runs in each
// turn, when a round of one run each takes as long as sweep, and so much time is
// left.
func (p pace) rounds(sweep, left time.Duration) (rounds, runs int) {
	if p.fixed > 0 {
		return roundsMin, p.fixed
	}
	fit := int(max(0, left) / max(1, sweep))
	rounds = min(max(fit/turnMin, roundsMin), roundsMax)
	return rounds, min(max(fit/rounds, 1), turnMax)
}
