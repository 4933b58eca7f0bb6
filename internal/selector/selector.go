// Package selector chooses how the collectives of a communicator are carried out:
// the algorithm, the number of channels, and the executor.
//
// Most callers make a Selector for a communicator and ask it for the Recipe of each
// call. Selectors with the same settings return matching Recipes on all ranks; the
// fingerprint of a Recipe contains the choice, so that ranks with different settings
// find a mismatch.
//
// A Selector may be used by several goroutines. Whether a change of the settings
// applies to a Recipe that is asked for at the same time is not defined: the caller
// changes them between the same calls on all ranks.
package selector

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Task is a collective whose parameters have been checked.
type Task struct {
	Kind    plan.Collective
	Type    uint8 // kernel.Type, 0 if there is no data
	Op      uint8 // kernel.Op or another number that ranks agree on; 0 if nothing is reduced
	Root    int
	Elem    int  // size of an element
	Count   int  // elements of the vector, or of a block
	Blocks  bool // chunks are blocks of Count elements
	InPlace bool // data and input are one, the longer of the two
	Ordered bool // operands are combined in the order of the ranks
	// Canonical asks for the same bits whatever the algorithm is.
	Canonical bool
	// Uneven, if not nil, has the lengths of blocks that differ, Total elements
	// together.
	Uneven *exec.Uneven
	Total  int
	// Digest identifies other properties of the vector that all ranks share; 0 if
	// there are none.
	Digest uint32
}

// timedBytes is the size from which an operation in shared memory takes so long that a
// look at the clock does not count.
const timedBytes = 32 << 10

// A cached recipe belongs to the last Task of a collective: most calls are like the one
// before.
type cached struct {
	how    *settings
	task   Task
	recipe exec.Recipe
}

type programKey struct {
	kind    plan.Collective
	index   int
	root    int
	inPlace bool
}

// A Selector makes the recipes of a communicator, and caches them.
type Selector struct {
	rank, size int
	pool       *bufpool.Pool

	how  atomic.Pointer[settings]
	last [plan.CollectiveLimit]atomic.Pointer[cached] // by collective

	mu       sync.Mutex // also of changes of how
	programs map[programKey]*linkexec.Program
	shared   map[programKey]*shmexec.Program
}

// New makes the Selector of a rank. The Tuner, which is the same on all ranks, chooses
// for executors over links.
func New(rank, size int, pool *bufpool.Pool, t Tuner) *Selector {
	b := &Selector{
		rank: rank, size: size, pool: pool,
		programs: make(map[programKey]*linkexec.Program), shared: make(map[programKey]*shmexec.Program),
	}
	b.how.Store(&settings{tuner: t})
	return b
}

// Recipe returns how a task is carried out. It must not be changed.
func (b *Selector) Recipe(t *Task) *exec.Recipe {
	how, p := b.how.Load(), b.last[t.Kind].Load()
	if p == nil || p.how != how || p.task != *t {
		p = &cached{how, *t, b.prepare(how, *t)}
		b.last[t.Kind].Store(p)
	}
	return &p.recipe
}

func (b *Selector) prepare(how *settings, t Task) exec.Recipe {
	choice := b.choose(how, t)
	count := uint64(t.Count)
	if t.Uneven != nil {
		count = uint64(t.Total)
	}
	if t.Digest != 0 || t.Uneven != nil {
		count = wire.Uneven(count, t.Digest)
	}
	r := exec.Recipe{
		Call: wire.Call{
			Kind: uint8(t.Kind), Type: t.Type, Op: t.Op, Root: uint32(t.Root), Count: count,
			Plan: uint8(choice.Index),
		},
		Channels: choice.Channels,
		Layout:   t.layout(),
		Pool:     b.pool,
	}
	if choice.Shared {
		p := b.sharedProgram(t, choice)
		r.Executor, r.Plan, r.Channels = exec.Shared, p, b.pieces(how, t, p)
		r.Brief = b.need(t).Bytes < timedBytes
		r.Call.Plan |= sharedPlan
	} else {
		r.Executor, r.Plan = exec.Links, b.program(t, choice)
	}
	r.Call.Channels = uint16(r.Channels)
	return r
}

// choose returns the choice of the settings, or links if the vector is too long for the
// board.
func (b *Selector) choose(how *settings, t Task) cost.Choice {
	need := b.need(t)
	c := how.choose(need)
	if c.Shared && !b.fits(how, t, c) {
		return how.chooseLinks(need)
	}
	return c
}

// fits reports whether a fingerprint has room for the number of pieces in which
// a task is carried out on the board.
func (b *Selector) fits(how *settings, t Task, c cost.Choice) bool {
	p := b.sharedProgram(t, c)
	pieces := b.pieces(how, t, p)
	return pieces <= math.MaxUint16
}

// pieces returns the number of pieces of a vector on the board.
func (b *Selector) pieces(how *settings, t Task, p *shmexec.Program) int {
	return p.Pieces(t.layout(), how.board.PieceBytes())
}

func (b *Selector) need(t Task) cost.Need {
	n := cost.Need{
		Collective: t.Kind, Size: b.size, Bytes: t.Count * t.Elem,
		Blocks: t.Blocks, Uneven: t.Uneven != nil, Ordered: t.Ordered, Canonical: t.Canonical,
	}
	switch {
	case t.Uneven != nil:
		n.Bytes = t.Total * t.Elem
	case t.Blocks:
		n.Bytes *= b.size
	}
	return n
}

func (t Task) layout() exec.Layout {
	return exec.Layout{Elem: t.Elem, Count: t.Count, Blocks: t.Blocks, Uneven: t.Uneven}
}

// program returns the plan of this rank, compiled for links.
func (b *Selector) program(t Task, choice cost.Choice) *linkexec.Program {
	key := programKey{kind: t.Kind, index: choice.Index, root: t.Root, inPlace: t.InPlace}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.programs[key]
	if p == nil {
		moves := choice.Algorithm.Plan(b.rank, b.size, t.Root)
		if t.InPlace {
			moves = plan.InPlace(moves)
		}
		p = linkexec.Compile(moves, b.size)
		b.programs[key] = p
	}
	return p
}

// sharedProgram returns the plan of this rank, compiled for the board.
func (b *Selector) sharedProgram(t Task, choice cost.Choice) *shmexec.Program {
	key := programKey{kind: t.Kind, index: choice.Index, root: t.Root}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.shared[key]
	if p == nil {
		p = shmexec.Compile(choice.Algorithm.Plans(b.size, t.Root), b.rank)
		b.shared[key] = p
	}
	return p
}
