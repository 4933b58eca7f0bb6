package selector

import (
	"math"
	"math/bits"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

// An Executor describes an executor of a communicator to a Selector.
type Executor struct {
	ID exec.ID // at most executorMax
	// Tuner chooses among the plans of the executor.
	Tuner Tuner
	// Compile returns the program of this rank, which becomes [exec.Schedule.Plan].
	Compile func(a plan.Algorithm, root int, inPlace bool) any
	// Channels returns the number of parts of a vector, given the number chosen by the Tuner. A
	// result above 65535 means that the executor cannot carry out the call.
	Channels func(program any, l exec.Layout, chosen int) int
	// BriefBytes is the minimum length of calls that are timed exactly: they take much longer
	// than reading the clock.
	BriefBytes int
	// LinksFrom is the minimum length of calls that may go over links if that is cheaper.
	// Shorter calls always use the executor.
	LinksFrom int
}

// The number of a plan in a fingerprint has the executor in its upper two bits, in reverse
// order: 0x80 is exec.Shared.
const (
	executorBits = 0xC0
	executorMax  = exec.ID(3)
)

// planNumber returns the number of a choice in fingerprints.
func planNumber(c Choice) uint8 { return uint8(c.Index) | bits.Reverse8(uint8(c.Executor)) }

// overLinks returns the executor over links.
func overLinks(rank, size int, t Tuner) *Executor {
	brief := 0
	if size == 1 { // Nothing is exchanged.
		brief = briefBytes
	}
	return &Executor{
		ID: exec.Links, Tuner: t, BriefBytes: brief,
		Compile: func(a plan.Algorithm, root int, inPlace bool) any {
			moves := a.Plan(rank, size, root)
			if inPlace {
				moves = plan.InPlace(moves)
			}
			return linkexec.Compile(moves, size)
		},
		Channels: func(_ any, _ exec.Layout, chosen int) int { return chosen },
	}
}

const (
	// briefBytes is the BriefBytes in memory.
	briefBytes = 32 << 10
	// sharedLinksFrom is its LinksFrom for ranks of one process. There a long message over
	// links is copied once, from one vector to the other, and in shared memory twice.
	sharedLinksFrom = 1 << 20
)

// inSharedMemory returns the executor in shared memory.
func inSharedMemory(rank, size int, b *shmexec.Memory, groups plan.Hosts) *Executor {
	x := &Executor{
		ID: exec.Shared, Tuner: cost.NewShared(cost.Host(b.PieceBytes(), b.Processors()), groups),
		Compile:    func(a plan.Algorithm, root int, _ bool) any { return shmexec.CompileAlgorithm(a, size, root, rank) },
		Channels:   func(p any, l exec.Layout, _ int) int { return p.(*shmexec.Program).Pieces(l, b.PieceBytes()) },
		BriefBytes: briefBytes, LinksFrom: math.MaxInt,
	}
	if b.Within() {
		x.LinksFrom = sharedLinksFrom
	}
	return x
}
