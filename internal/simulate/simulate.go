// Package simulate predicts the time of collectives on machines that are described by a few
// numbers.
//
// It executes the plans of [plan.AlgorithmsOn] in a discrete-event model. Ranks of a host share its
// processors, and every message takes time of the processors of both sides. Messages between
// hosts occupy the links of their path, one after the other, so that contention shows. Long
// messages wait for a grant of their receiver, as they do in package link.
//
// The model is deterministic. It has no goroutine, clock or random number.
package simulate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

// A Machine is the hardware that executes a collective. All hosts are alike. Rank r is on host
// r / RanksPerHost.
type Machine struct {
	Topology     Topology
	RanksPerHost int

	// Cores is the number of processors of a host. With fewer than RanksPerHost, ranks wait for
	// one another.
	Cores int

	Network Path // between hosts
	Memory  Path // between ranks of a host

	// Hop is the additional latency of each switch after the first, or of each node of a torus.
	Hop time.Duration

	// Switch is the time of a processor to change from one rank to another.
	Switch time.Duration

	// A rank that waits polls for a time of PollFor. With fewer processors than ranks, Poll is the time for
	// which it then occupies a processor before others have a turn, so that it finds a message
	// after all other ranks of its processor have polled.
	Poll, PollFor time.Duration

	// Wake is the processor time to continue after a wait of more than PollFor.
	Wake time.Duration

	// ReduceRate is the rate in bytes per second at which a processor applies an op, or copies within a
	// rank. 0 takes no time.
	ReduceRate float64

	// Eager is the length in bytes of the longest message that needs no grant.
	Eager int
}

// A Path describes messages of one kind.
type Path struct {
	// Latency is the time from the end of sending until the receiver notices the message, beyond
	// the time that its bytes occupy links.
	Latency time.Duration

	// Rate is the number of bytes per second of each link, and for memory that of each host. 0 is
	// unlimited.
	Rate float64

	// Message is the processor time for each message, at the sender and at the receiver.
	Message time.Duration

	// CopyRate is the number of bytes per second that a processor copies into or out of a message.
	// 0 is for hardware that reads and writes vectors itself.
	CopyRate float64
}

// A Call is a collective to simulate.
type Call struct {
	Algorithm plan.Algorithm
	Ranks     int
	Root      int
	Bytes     int // of the vector, or of the blocks of all ranks

	// Channels is the number of parallel runs of the plans, each on a slice of the vector. 0 is 1.
	Channels int

	// Hierarchical says that Algorithm is one of [plan.Hierarchical] for the hosts of the machine. The plan of a rank then
	// takes time for each host, so fewer ranks and moves are possible.
	Hierarchical bool

	// FullMax limits the execution in full of plans with alike rounds, such as rings. With more
	// ranks the first rounds of each section are executed, and the others are assumed to take as
	// long.
	FullMax int

	MovesMax int // the largest number of moves of all ranks, if it is not 0 and less than the limits
}

// A Result is the outcome of a simulation.
type Result struct {
	Seconds  float64 // until the last rank has ended, if all begin at once
	Messages int64
	Bytes    int64 // of all messages

	// Busiest names the link that carried the most bytes between hosts, or is empty if none carried
	// any. BusiestBytes is the number of these bytes.
	Busiest      string
	BusiestBytes int64

	// Symmetric says that only the first rounds were executed.
	Symmetric bool
}

// ErrStopped is returned if the progress function has stopped the simulation.
var ErrStopped = errors.New("stopped")

// ErrTooLarge is wrapped by errors about plans with too many moves.
var ErrTooLarge = errors.New("too large")

// Progress is told from time to time how many of all rounds have begun. It returns false to stop
// the simulation.
type Progress func(done, all int64) bool

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

// Run simulates a call. Progress may be nil.
func Run(m Machine, c Call, progress Progress) (Result, error) {
	switch {
	case c.Ranks < 1 || c.Ranks > math.MaxInt32/4:
		return Result{}, fmt.Errorf("%d ranks: must be between 1 and %d", c.Ranks, math.MaxInt32/4)
	case c.Bytes < 0:
		return Result{}, fmt.Errorf("%d bytes: must not be negative", c.Bytes)
	case c.Root < 0 || c.Root >= c.Ranks:
		return Result{}, fmt.Errorf("root %d: must be a rank below %d", c.Root, c.Ranks)
	case c.Channels < 0 || c.Channels > channelsMax:
		return Result{}, fmt.Errorf("%d channels: must be between 0 and %d", c.Channels, channelsMax)
	}
	if err := m.Check(c.Ranks); err != nil {
		return Result{}, err
	}
	if c.Algorithm.Rounds == nil {
		most := wholeMax
		if c.Hierarchical {
			most = hierarchicalMax
			if hosts := m.hosts(c.Ranks); c.Ranks*hosts > rankHostsMax {
				return Result{}, fmt.Errorf("%s of %d ranks on %d hosts: %w: the product of ranks and hosts is %d, the limit is %d: choose fewer ranks or another algorithm",
					c.Algorithm.Name, c.Ranks, hosts, ErrTooLarge, c.Ranks*hosts, rankHostsMax)
			}
		}
		if err := c.limit(most, m.RanksPerHost); err != nil {
			return Result{}, err
		}
		return m.execute(c, newPremade(c), progress)
	}
	r := c.Algorithm.Rounds(c.Ranks, c.Root)
	if r.Alike > 0 && c.Ranks > c.FullMax {
		return m.symmetric(c, r, progress)
	}
	if err := c.limit(movesMax, m.RanksPerHost); err != nil {
		return Result{}, err
	}
	return m.execute(c, &roundwise{rounds: r}, progress)
}

// limit returns an error if the plans of all ranks have more moves than most. It estimates their number from a few ranks.
func (c *Call) limit(most, perHost int) error {
	of := func(rank int) (moves int) {
		if c.Algorithm.Rounds != nil {
			r := c.Algorithm.Rounds(c.Ranks, c.Root)
			var round plan.Round
			for k := range r.Len(rank) {
				round = r.Append(round[:0], rank, k)
				moves += len(round)
			}
			return moves
		}
		for _, round := range c.Algorithm.Plan(rank, c.Ranks, c.Root).Rounds {
			moves += len(round)
		}
		return moves
	}
	last := c.Ranks - 1
	inner := of(c.Ranks / 2)
	if c.Hierarchical {
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
			c.Algorithm.Name, c.Ranks, ErrTooLarge, all, most)
	}
	return nil
}

// Check returns an error for a machine that cannot have so many ranks.
func (m *Machine) Check(ranks int) error {
	switch {
	case m.RanksPerHost < 1:
		return fmt.Errorf("%d ranks per host: must be at least 1", m.RanksPerHost)
	case m.Cores < 1:
		return fmt.Errorf("%d cores per host: must be at least 1", m.Cores)
	}
	return m.Topology.check(m.hosts(ranks))
}

// hosts returns the number of hosts of a number of ranks.
func (m *Machine) hosts(ranks int) int { return (ranks + m.RanksPerHost - 1) / m.RanksPerHost }

// sampledRounds is the number of rounds of each section that symmetric executes, if all ranks have
// no more than sampledMoves together.
const (
	sampledRounds = 64
	sampledMoves  = 1 << 25
)

// symmetric executes the first rounds of each section of a plan twice, with different numbers of
// rounds, and assumes that all others take as long as those between the two.
func (m *Machine) symmetric(c Call, r plan.Rounds, progress Progress) (Result, error) {
	section := r.Len(0) / r.Alike
	keep := min(sampledRounds, section, max(8, sampledMoves/(2*r.Alike*c.Ranks)))
	half := keep / 2
	if half == 0 || keep == section {
		return m.execute(c, &roundwise{rounds: r}, progress)
	}
	part := func(keep, done int) (Result, error) {
		return m.execute(c, &roundwise{rounds: r, section: section, keep: keep}, func(n, all int64) bool {
			return progress == nil || progress(n+int64(done*r.Alike*c.Ranks), int64((keep+half)*r.Alike*c.Ranks))
		})
	}
	short, err := part(half, 0)
	if err != nil {
		return Result{}, err
	}
	long, err := part(keep, half)
	if err != nil {
		return Result{}, err
	}
	more := float64(section-keep) / float64(keep-half)
	extend := func(short, long int64) int64 { return long + int64(more*float64(long-short)) }
	return Result{
		Seconds:  long.Seconds + more*(long.Seconds-short.Seconds),
		Messages: extend(short.Messages, long.Messages), Bytes: extend(short.Bytes, long.Bytes),
		Busiest: long.Busiest, BusiestBytes: extend(short.BusiestBytes, long.BusiestBytes),
		Symmetric: true,
	}, nil
}
