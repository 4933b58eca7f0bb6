//go:build unix

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A changeStats counts the outcomes of changes.
type changeStats struct {
	worlds, failed  int
	removed         int            // removed processes that were unharmed, or stopped for less than the timeout
	kinds           map[string]int // changes
	kills           []time.Duration
	seedKills       []time.Duration // of kills at the same time as a seed
	joins, starts   []time.Duration
	protectedMemory []string // memory use of the protected processes, a line each
}

// total returns the number of changes of all kinds.
func (s *changeStats) total() (n int) {
	for _, k := range s.kinds {
		n += k
	}
	return n
}

// spread formats the number and the quantiles of times.
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

// summary returns the report of a run of TestChanges.
func (s *changeStats) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, `Worlds of processes on one host change at random while they make verified all-reduces, each with a
reconfiguration after it; printed by "make changes".
%s

They form with %d processes and have between %d and %d. After each change Sync copies the state of rank 0 to all
ranks, and the final state is checked against the number of steps. A world has failed if a result or the state is
wrong, if the processes do not make steps in one epoch within %v after a change, if a process ends unexpectedly,
or if a resource outlives the processes.

%d worlds, %d failed, %d changes, %d processes removed that were unharmed or only stopped

`, machine(), changingRanks, changingMin, changingMax, settleMax, s.worlds, s.failed, s.total(), s.removed)
	for _, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		fmt.Fprintf(&b, "%-24s %4d\n", kind, s.kinds[kind])
	}
	fmt.Fprintf(&b, `
from SIGKILL until the last survivor has the next communicator
  %s
from the reconfiguration before a new node until the first all-reduce with it has returned on all ranks
  %s
from the start of its process until the same moment
  %s

Memory use of a process that was never removed, when the world of %d had formed and after all changes, at the same size:
%s
`, spread(s.kills), spread(s.joins), spread(s.starts), changingRanks, strings.Join(s.protectedMemory, "\n"))
	return b.String()
}
