// Package simulate predicts the time of collectives on machines and networks that the caller describes,
// with up to a million ranks.
//
// [Run] executes the plans that the ranks of a [nexar.Comm] execute over links, in a discrete-event
// simulation of a [Model]. Ranks of a host share its processors, every message takes
// processor time at both ends, and messages between hosts occupy the links of their path. One call
// is simulated alone, and all ranks begin at once.
//
// Simulations are deterministic, and may run in several goroutines at once.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// ErrInvalid is wrapped by errors about a model or a call that cannot be simulated.
var ErrInvalid = errors.New("invalid simulation")

// ErrTooLarge is wrapped by errors about an algorithm with too many moves for the number of ranks. These errors wrap ErrInvalid, too.
var ErrTooLarge = errors.New("too large")

// A Model describes hosts that are all alike, and their network. Rank r is on host
// r / RanksPerHost.
type Model struct {
	// Topology is the network between hosts, in one of these forms:
	//
	//	flat             only the links of the hosts are ever busy
	//	fat-tree:32:4    leaf switches with 32 hosts and 32/4 links to a spine that is never busy
	//	torus:16x16x8    each host has two neighbors in each dimension
	//
	// Empty is flat. The dimensions of a torus have to multiply to the number of hosts.
	Topology string

	RanksPerHost int // 0 is 1

	// Cores is the number of processors of a host. If it is less than RanksPerHost, ranks wait for
	// one another. 0 is one for each rank.
	Cores int

	Network Path // between hosts
	Memory  Path // between ranks of a host

	// Hop is the additional latency of each switch after the first, or of each host that a message
	// passes in a torus.
	Hop time.Duration

	// Switch is the time of a processor to change from one rank to another.
	Switch time.Duration

	// Poll, PollFor and Wake describe ranks that wait. A rank polls for PollFor. With fewer processors
	// than ranks, each poll occupies a processor for Poll, and a rank finds a message after all others of
	// its processor have polled. A rank that has waited longer than PollFor sleeps, and takes the
	// processor time Wake to continue. Poll and Wake of 0 are ranks that wait without cost.
	Poll, PollFor, Wake time.Duration

	// ReduceRate is the rate in bytes per second at which a processor applies an op to vectors, or
	// copies within a rank. 0 takes no time.
	ReduceRate float64

	// Eager is the length in bytes of the longest message that is sent without a grant of the
	// receiver. 0 is 128 KiB, as in nexar.
	Eager int
}

// A Path describes the messages between ranks on different hosts, or on one.
type Path struct {
	// Latency is the time until the receiver notices a message, beyond the time that its bytes
	// occupy links.
	Latency time.Duration

	// Rate is the number of bytes per second of each link in each direction. Between ranks of a
	// host it is that of its memory. 0 is unlimited.
	Rate float64

	// Message is the processor time that each message takes at the sender, and at the receiver.
	Message time.Duration

	// CopyRate is the number of bytes per second that a processor copies into or out of messages.
	// 0 takes no time: the network reads and writes vectors itself.
	CopyRate float64
}

// A Call is one collective.
type Call struct {
	Collective string // as in errors: "all_reduce"
	Algorithm  string // one of those of [Model.Algorithms]
	Ranks      int
	Root       int // of collectives with a root
	Bytes      int // of the vector, or of the blocks of all ranks together

	// Channels is the number of parallel runs of the algorithm, each on a slice of the vector. nexar uses up to 64
	// between hosts, and one for blocks. 0 is 1.
	Channels int

	// FullRingMax is the largest number of ranks of rings that are simulated in full. With more ranks
	// the first rounds are simulated, and the others take as long as these. 0 is 4096.
	FullRingMax int

	// MovesMax is the largest number of moves of all ranks together. An algorithm that has more fails with
	// [ErrTooLarge]. 0 is the largest that can be simulated.
	MovesMax int
}

// A Result is the outcome of a simulation.
type Result struct {
	Time     time.Duration // until the last rank has ended
	Messages int64
	Bytes    int64 // of all messages together

	// BusiestLink is the link between hosts that carried the most bytes, such as "from host 3" or
	// "to leaf 2 by link 1". It is empty if none carried any.
	BusiestLink  string
	BusiestBytes int64

	// Symmetric says that only the first rounds of a ring were simulated.
	Symmetric bool
}

const (
	defaultEager       = wire.PayloadMax
	defaultFullRingMax = 4096
)

// Collectives returns the names of all collectives.
func Collectives() []string {
	var names []string
	for _, c := range plan.Collectives() {
		names = append(names, c.String())
	}
	return names
}

// Algorithms is [Model.Algorithms] for hosts with one rank.
func Algorithms(collective string, ranks int) ([]string, error) {
	return Model{}.Algorithms(collective, ranks)
}

// Algorithms returns the names of the algorithms of a collective that suit a number of ranks of the model over
// links. Those that compute plans round by round come first; the others need memory for the plans of
// all ranks. With several ranks on each of several hosts, the hierarchical algorithms, with names such as "hosts-ring",
// are among the others. nexar chooses these if the ranks of each host share memory.
func (m Model) Algorithms(collective string, ranks int) ([]string, error) {
	all, _, err := m.algorithms(collective, ranks)
	if err != nil {
		return nil, err
	}
	var names, more []string
	for _, a := range all {
		if a.Rounds != nil {
			names = append(names, a.Name)
		} else {
			more = append(more, a.Name)
		}
	}
	return append(names, more...), nil
}

// algorithms returns the algorithms of a collective that suit a number of ranks over links. The first flat of them are not
// hierarchical.
func (m Model) algorithms(collective string, ranks int) (list []plan.Algorithm, flat int, err error) {
	for _, c := range plan.Collectives() {
		if c.String() == collective {
			unfit := func(a plan.Algorithm) bool { return a.Shared || !a.Fits(ranks) }
			list = slices.DeleteFunc(plan.Algorithms(c), unfit)
			flat = len(list)
			if m.RanksPerHost > 1 && m.RanksPerHost < ranks {
				list = append(list, slices.DeleteFunc(plan.Hierarchical(c, plan.EvenHosts(ranks, m.RanksPerHost)), unfit)...)
			}
			return list, flat, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: unknown collective %q: want one of %s", ErrInvalid, collective, strings.Join(Collectives(), ", "))
}

// Run simulates a call. It calls progress, unless that is nil, from time to time with the number of
// rounds of all ranks that have begun, and the number of all rounds. It blocks until the simulation
// has ended or ctx is done, and then returns its cause. Errors about the model or the call wrap
// [ErrInvalid].
//
// All-reduce by recursive doubling of a million ranks takes about 10 seconds and less than 2 GiB of memory.
func Run(ctx context.Context, m Model, c Call, progress func(done, all int64)) (Result, error) {
	machine, err := m.machine()
	if err != nil {
		return Result{}, err
	}
	list, flat, err := m.algorithms(c.Collective, c.Ranks)
	if err != nil {
		return Result{}, err
	}
	i := slices.IndexFunc(list, func(a plan.Algorithm) bool { return a.Name == c.Algorithm })
	if i < 0 {
		names, _ := m.Algorithms(c.Collective, c.Ranks)
		return Result{}, fmt.Errorf("%w: %s of %d ranks has no algorithm %q: want one of %s", ErrInvalid, c.Collective, c.Ranks, c.Algorithm, strings.Join(names, ", "))
	}
	c.FullRingMax = cmp.Or(c.FullRingMax, defaultFullRingMax)
	o, err := machine.run(call{Call: c, algorithm: list[i], hierarchical: i >= flat}, func(done, all int64) bool {
		if progress != nil {
			progress(done, all)
		}
		return ctx.Err() == nil
	})
	switch {
	case errors.Is(err, errStopped):
		return Result{}, context.Cause(ctx)
	case err != nil:
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	o.Time = time.Duration(math.Round(o.seconds * float64(time.Second)))
	return o.Result, nil
}

// Check returns an error that wraps [ErrInvalid] if the model cannot have so many ranks.
func (m Model) Check(ranks int) error {
	machine, err := m.machine()
	if err != nil {
		return err
	}
	if err := machine.check(ranks); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// machine returns the model with all defaults.
func (m Model) machine() (*machine, error) {
	t, err := parseTopology(m.Topology)
	if err != nil {
		return nil, err
	}
	m.RanksPerHost = cmp.Or(m.RanksPerHost, 1)
	m.Cores = cmp.Or(m.Cores, m.RanksPerHost)
	m.Eager = cmp.Or(m.Eager, defaultEager)
	return &machine{Model: m, topology: t}, nil
}
