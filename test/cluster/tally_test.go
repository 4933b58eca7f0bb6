//go:build unix

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A tally counts the outcomes of changes.
type tally struct {
	worlds, failed int
	removed        int            // removed processes that were unharmed, or stopped for less than the timeout
	kinds          map[string]int // changes
	kills          []time.Duration
	seedKills      []time.Duration // those of them with which a seed was killed
	joins, starts  []time.Duration
	elders         []string // how those were that have been there all the time, for people
}

// changes is their number.
func (c *tally) changes() (n int) {
	for _, k := range c.kinds {
		n += k
	}
	return n
}

// spread says how times are spread.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	slices.Sort(took)
	at := func(p float64) float64 {
		return float64(took[max(0, int(p*float64(len(took))+0.999999)-1)].Microseconds()) / 1000
	}
	return fmt.Sprintf("%4d   p50 %7.1f ms   p99 %7.1f ms   most %7.1f ms", len(took), at(0.5), at(0.99), at(1))
}

// report says how changes have gone.
func (c *tally) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, `Worlds of processes on one host change at random while they make verified all-reduces, each with a
checkpoint after it; printed by "make changes".
%s

They form with %d processes and stay between %d and %d. All ranks have the same state after each change, from
rank 0 by Sync, and in the end what the number of steps makes it. A world has failed if a result or the state is
wrong, if after a change not all work together within %v, if a process ends that was not to, or if
anything is left behind.

%d worlds, %d failed, %d changes, %d processes removed that were only stopped, or had nothing done to them

`, machine(), changingRanks, changingMin, changingMax, settleMax, c.worlds, c.failed, c.changes(), c.removed)
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		fmt.Fprintf(&b, "%-24s %4d\n", kind, c.kinds[kind])
	}
	fmt.Fprintf(&b, `
from SIGKILL until the last survivor has the next communicator
  %s
from the checkpoint to which nodes were called until the first all-reduce with the newcomer is over everywhere
  %s
from the start of its process until then
  %s

A process that was there all the time, when the world of %d had formed, and after all changes, with as many:
%s
`, spread(c.kills), spread(c.joins), spread(c.starts), changingRanks, strings.Join(c.elders, "\n"))
	return b.String()
}
