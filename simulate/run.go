package simulate

import (
	"errors"
	"fmt"
	"math"

	"github.com/nexar-go/nexar/internal/plan"
)

// A machine is a Model with all defaults.
type machine struct {
	Model
	topology topology
}

// A call is a Call of an algorithm.
type call struct {
	Call
	algorithm plan.Algorithm
	// hierarchical says that algorithm is one of [plan.Hierarchical] for the hosts of the machine. The plan of a rank then
	// takes time for each host, so fewer ranks and moves are possible.
	hierarchical bool
}

// An outcome is a Result before its time is rounded.
type outcome struct {
	Result
	seconds float64 // until the last rank has ended, if all begin at once
}

var errStopped = errors.New("stopped")

// A progressFunc is told from time to time how many of all rounds have begun. It returns false to stop
// the simulation.
type progressFunc func(done, all int64) bool

// Limits of the moves of all ranks together. Plans that are only made as a whole are in memory.
const (
	movesMax        = 1 << 28
	wholeMax        = 1 << 26
	hierarchicalMax = 1 << 23 // of hierarchical plans
)

// rankHostsMax limits the product of ranks and hosts for hierarchical plans, since the plan of a rank takes time for each host.
const rankHostsMax = 1 << 24

// channelsMax is the largest number of channels.
const channelsMax = 1 << 10

// run simulates a call. progress may be nil.
func (m *machine) run(c call, progress progressFunc) (outcome, error) {
	switch {
	case c.Ranks < 1 || c.Ranks > math.MaxInt32/4:
		return outcome{}, fmt.Errorf("%d ranks: must be between 1 and %d", c.Ranks, math.MaxInt32/4)
	case c.Bytes < 0:
		return outcome{}, fmt.Errorf("%d bytes: must not be negative", c.Bytes)
	case c.Root < 0 || c.Root >= c.Ranks:
		return outcome{}, fmt.Errorf("root %d: must be a rank below %d", c.Root, c.Ranks)
	case c.Channels < 0 || c.Channels > channelsMax:
		return outcome{}, fmt.Errorf("%d channels: must be between 0 and %d", c.Channels, channelsMax)
	}
	if err := m.check(c.Ranks); err != nil {
		return outcome{}, err
	}
	if c.algorithm.Rounds == nil {
		most := wholeMax
		if c.hierarchical {
			most = hierarchicalMax
			if hosts := m.hosts(c.Ranks); c.Ranks*hosts > rankHostsMax {
				return outcome{}, fmt.Errorf("%s of %d ranks on %d hosts: %w: the product of ranks and hosts is %d, the limit is %d: choose fewer ranks or another algorithm",
					c.algorithm.Name, c.Ranks, hosts, ErrTooLarge, c.Ranks*hosts, rankHostsMax)
			}
		}
		if err := c.limit(most, m.RanksPerHost); err != nil {
			return outcome{}, err
		}
		return m.execute(c, newPremade(c), progress)
	}
	r := c.algorithm.Rounds(c.Ranks, c.Root)
	if r.Alike > 0 && c.Ranks > c.FullRingMax {
		return m.symmetric(c, r, progress)
	}
	if err := c.limit(movesMax, m.RanksPerHost); err != nil {
		return outcome{}, err
	}
	return m.execute(c, &roundwise{rounds: r}, progress)
}

// limit returns an error if the plans of all ranks have more moves than most. It estimates their number from a few ranks.
func (c *call) limit(most, perHost int) error {
	of := func(rank int) (moves int) {
		if c.algorithm.Rounds != nil {
			r := c.algorithm.Rounds(c.Ranks, c.Root)
			var round plan.Round
			for k := range r.Len(rank) {
				round = r.Append(round[:0], rank, k)
				moves += len(round)
			}
			return moves
		}
		for _, round := range c.algorithm.Plan(rank, c.Ranks, c.Root).Rounds {
			moves += len(round)
		}
		return moves
	}
	last := c.Ranks - 1
	inner := of(c.Ranks / 2)
	if c.hierarchical {
		// The first rank of a host may have many more moves than its others.
		const sampled = 8
		first, n := c.Ranks/2/perHost*perHost, min(perHost, sampled)
		inner = 0
		for rank := first; rank < min(first+n, c.Ranks); rank++ {
			inner += of(rank)
		}
		inner = (inner + n - 1) / n
	}
	if c.MovesMax > 0 {
		most = min(most, c.MovesMax)
	}
	// The root may have many more moves than the others.
	if all := (max(inner, of(last))*last + of(c.Root)) * max(c.Channels, 1); all > most {
		return fmt.Errorf("%s of %d ranks: %w: the plans have about %d moves, the limit is %d: choose fewer ranks or another algorithm",
			c.algorithm.Name, c.Ranks, ErrTooLarge, all, most)
	}
	return nil
}

// check returns an error for a machine that cannot have so many ranks.
func (m *machine) check(ranks int) error {
	switch {
	case m.RanksPerHost < 1:
		return fmt.Errorf("%d ranks per host: must be at least 1", m.RanksPerHost)
	case m.Cores < 1:
		return fmt.Errorf("%d cores per host: must be at least 1", m.Cores)
	}
	if err := m.topology.check(m.hosts(ranks)); err != nil {
		return fmt.Errorf("topology %s: %w", m.Topology, err)
	}
	return nil
}

// hosts returns the number of hosts of a number of ranks.
func (m *machine) hosts(ranks int) int { return (ranks + m.RanksPerHost - 1) / m.RanksPerHost }

// sampledRounds is the number of rounds of each section that symmetric executes, if all ranks have
// no more than sampledMoves together.
const (
	sampledRounds = 64
	sampledMoves  = 1 << 25
)

// symmetric executes the first rounds of each section of a plan twice, with different numbers of
// rounds, and assumes that all others take as long as those between the two.
func (m *machine) symmetric(c call, r plan.Rounds, progress progressFunc) (outcome, error) {
	section := r.Len(0) / r.Alike
	keep := min(sampledRounds, section, max(8, sampledMoves/(2*r.Alike*c.Ranks)))
	half := keep / 2
	if half == 0 || keep == section {
		return m.execute(c, &roundwise{rounds: r}, progress)
	}
	part := func(keep, done int) (outcome, error) {
		return m.execute(c, &roundwise{rounds: r, section: section, keep: keep}, func(n, all int64) bool {
			return progress == nil || progress(n+int64(done*r.Alike*c.Ranks), int64((keep+half)*r.Alike*c.Ranks))
		})
	}
	short, err := part(half, 0)
	if err != nil {
		return outcome{}, err
	}
	long, err := part(keep, half)
	if err != nil {
		return outcome{}, err
	}
	more := float64(section-keep) / float64(keep-half)
	extend := func(short, long int64) int64 { return long + int64(more*float64(long-short)) }
	return outcome{seconds: long.seconds + more*(long.seconds-short.seconds), Result: Result{
		Messages: extend(short.Messages, long.Messages), Bytes: extend(short.Bytes, long.Bytes),
		BusiestLink: long.BusiestLink, BusiestBytes: extend(short.BusiestBytes, long.BusiestBytes),
		Symmetric: true,
	}}, nil
}
