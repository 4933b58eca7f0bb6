// Package selector chooses the algorithm, the number of channels and the executor of the
// collectives of a communicator.
//
// Most callers make a [Selector] for a communicator and call [Selector.Schedule] for each call.
// Selectors with the same settings return matching schedules on all ranks. The fingerprint of a
// schedule contains the choice, so that ranks with different settings find a mismatch.
//
// A Selector may be used by several goroutines. Whether a concurrent change of the settings
// applies to a schedule is undefined: the caller changes them between the same calls on all
// ranks.
package selector

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Shape has the checked parameters of a collective. Calls of the same Shape share a schedule.
type Shape struct {
	Kind    plan.Collective
	Type    uint8 // kernel.Type, 0 if there is no data
	Op      uint8 // kernel.Op or another number that ranks agree on; 0 if nothing is reduced
	Root    int
	Elem    int  // size of an element in bytes
	Count   int  // elements of the vector, or of a block
	Blocks  bool // chunks are blocks of Count elements
	InPlace bool // data and input are one buffer, the longer of the two
	Ordered bool // operands are combined in the order of the ranks
	// Canonical requires the same bits from every algorithm.
	Canonical bool
	// Uneven, if not nil, has the lengths of blocks that differ, Total elements
	// together.
	Uneven *exec.Uneven
	Total  int
	// Digest identifies other properties of the vector that all ranks share; 0 if
	// there are none.
	Digest uint32
}

// A Choice is the executor, algorithm and number of channels of a collective.
type Choice struct {
	cost.Choice
	Executor exec.ID
	By       Reason
}

// A Reason is the part of the settings that decides a [Choice].
type Reason uint8

// The reasons.
const (
	ByModel Reason = iota // the cost model
	ByPin                 // see [Selector.Pin]
	ByHint                // see [Hints]
)

// A cached schedule belongs to the last Shape of a collective: most calls have the shape of the
// previous one.
type cached struct {
	cfg      *settings
	shape    Shape
	schedule exec.Schedule
}

type programKey struct {
	executor exec.ID
	kind     plan.Collective
	index    int
	root     int
	inPlace  bool
}

// A Selector makes and caches the schedules of a communicator.
type Selector struct {
	rank, size int
	pool       *bufpool.Pool

	cfg  atomic.Pointer[settings]
	last [plan.CollectiveLimit]atomic.Pointer[cached] // by collective

	mu       sync.Mutex // also serializes changes of cfg
	programs map[programKey]any
}

// New returns the Selector of a rank. The Tuner chooses for the executor over links, and must
// be the same on all ranks.
func New(rank, size int, pool *bufpool.Pool, t Tuner) *Selector {
	s := &Selector{rank: rank, size: size, pool: pool, programs: make(map[programKey]any)}
	s.cfg.Store(&settings{links: overLinks(rank, size, t)})
	return s
}

// Schedule returns the schedule of calls of a shape. The caller must not change it.
func (s *Selector) Schedule(t *Shape) *exec.Schedule {
	cfg, p := s.cfg.Load(), s.last[t.Kind].Load()
	if p == nil || p.cfg != cfg || p.shape != *t {
		p = &cached{cfg, *t, s.prepare(cfg, *t)}
		s.last[t.Kind].Store(p)
	}
	return &p.schedule
}

func (s *Selector) prepare(cfg *settings, t Shape) exec.Schedule {
	choice := s.choose(cfg, t)
	x, program := cfg.executor(choice.Executor), s.program(cfg, t, choice)
	count := uint64(t.Count)
	if t.Uneven != nil {
		count = uint64(t.Total)
	}
	if t.Digest != 0 || t.Uneven != nil {
		count = wire.Uneven(count, t.Digest)
	}
	r := exec.Schedule{
		Call: wire.Call{
			Kind: uint8(t.Kind), Type: t.Type, Op: t.Op, Root: uint32(t.Root), Count: count,
			Plan: planNumber(choice),
		},
		Executor: x.ID, Plan: program,
		Channels: x.Channels(program, t.layout(), choice.Channels),
		Layout:   t.layout(),
		Pool:     s.pool,
		Brief:    s.need(t).Bytes < x.BriefBytes,
	}
	r.Call.Channels = uint16(r.Channels)
	return r
}

// choose returns the choice of the settings. If the preferred executor cannot carry it out, it
// returns one over links.
func (s *Selector) choose(cfg *settings, t Shape) Choice {
	need := s.need(t)
	c := cfg.choose(need)
	if !s.fits(cfg, t, c) {
		return cfg.chooseLinks(need)
	}
	return c
}

// fits reports whether a fingerprint has room for the number of parts of a call with choice c.
func (s *Selector) fits(cfg *settings, t Shape, c Choice) bool {
	x := cfg.executor(c.Executor)
	return x.Channels(s.program(cfg, t, c), t.layout(), c.Channels) <= math.MaxUint16
}

func (s *Selector) need(t Shape) cost.Need {
	n := cost.Need{
		Collective: t.Kind, Size: s.size, Bytes: t.Count * t.Elem,
		Blocks: t.Blocks, Uneven: t.Uneven != nil, Ordered: t.Ordered, Canonical: t.Canonical,
	}
	switch {
	case t.Uneven != nil:
		n.Bytes = t.Total * t.Elem
	case t.Blocks:
		n.Bytes *= s.size
	}
	return n
}

func (t Shape) layout() exec.Layout {
	return exec.Layout{Elem: t.Elem, Count: t.Count, Blocks: t.Blocks, Uneven: t.Uneven}
}

// program returns the plan of this rank, compiled for the executor of a choice.
func (s *Selector) program(cfg *settings, t Shape, c Choice) any {
	key := programKey{executor: c.Executor, kind: t.Kind, index: c.Index, root: t.Root, inPlace: t.InPlace}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs[key]
	if p == nil {
		p = cfg.executor(c.Executor).Compile(c.Algorithm, t.Root, t.InPlace)
		s.programs[key] = p
	}
	return p
}
