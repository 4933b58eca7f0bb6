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

// more is how many more runs a cell should have that has had done runs, which
// took that long, when its share of the time is share. It is 0 in the end. One
// run says little about the next ones, so that there are never more than there
// were already.
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
