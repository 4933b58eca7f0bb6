package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// An unevenTrial is one collective to run on all ranks, with blocks of different lengths.
// It ignores the count, the algorithm and the channels of the trial in it.
type unevenTrial struct {
	trial
	how pinned
	// lengths are the lengths of blocks: for an all-to-all by sender and receiver, for
	// other collectives one row.
	lengths [][]int
	begun   bool // started without blocking
}

func (u unevenTrial) String() string {
	return fmt.Sprintf("%v of %v × %v, %s values, op %v, root %d, %s, rank %d late, in place %d, begun: %v",
		u.collective, u.lengths, u.kind.typ, u.flavour, u.op, u.root, u.how.name, u.late, u.inPlace, u.begun)
}

// pinned is the pin of a collective. If it is empty, the model chooses.
type pinned struct {
	name string
	pin  string
}

// take sets the pin on a rank until undo is called.
func (p pinned) take(c *nexar.Comm) (undo func(), err error) {
	if p.pin == "" {
		return func() {}, nil
	}
	return func() { unpin(c) }, c.SetAlgorithms(p.pin)
}

// choicesOf returns all pins for n ranks for a collective. A pin without channels runs
// in shared memory if the ranks share memory and the algorithm allows it. Some of the
// algorithms are not for blocks of different lengths.
func choicesOf(k plan.Collective, n int) []pinned {
	list := []pinned{{name: "as the model chooses"}}
	for _, a := range (&trialGenerator{n: n}).algorithms(k) {
		if !a.Fits(n) {
			continue
		}
		pin := fmt.Sprintf("%v=%s", k, a.Name)
		list = append(list, pinned{name: "pinned " + pin, pin: pin})
		for _, channels := range []int{1, 3, 8} {
			if pin := fmt.Sprintf("%s/%d", pin, channels); !a.Shared {
				list = append(list, pinned{name: "pinned " + pin, pin: pin})
			}
		}
	}
	return list
}

// run runs the collective on all ranks and checks all memory that it has, or has not,
// written.
func (u unevenTrial) run(comms []*nexar.Comm) error {
	err := worldtest.ForEach(len(comms), func(rank int) error {
		undo, err := u.how.take(comms[rank])
		if err != nil {
			return err
		}
		defer undo()
		return u.on(context.Background(), comms[rank])
	})
	if err != nil {
		return fmt.Errorf("%v:\n%w", u, err)
	}
	return nil
}

// on runs the part of one rank.
func (u unevenTrial) on(ctx context.Context, c *nexar.Comm) error {
	switch u.kind.typ {
	case kernel.Uint8:
		return tryUneven[uint8](ctx, c, u)
	case kernel.Float16:
		return tryUneven[nexar.Float16](ctx, c, u)
	case kernel.Float32:
		return tryUneven[float32](ctx, c, u)
	case kernel.Int64:
		return tryUneven[int64](ctx, c, u)
	}
	panic("a type that is not among those to be tried")
}

// unevenKinds has one type of each size.
func unevenKinds() (list []*kind) {
	for _, k := range kinds() {
		switch k.typ {
		case kernel.Uint8, kernel.Float16, kernel.Float32, kernel.Int64:
			list = append(list, k)
		}
	}
	return list
}

// An unevenParty is one rank of a trial, with its buffers for the call.
type unevenParty[T nexar.Number] struct {
	unevenTrial
	rank, n  int
	dst, src guarded[T]
	out, in  []int // lengths of the blocks of src, and of dst
	shares   bool  // the shorter buffer is the own block of the longer one
}

func tryUneven[T nexar.Number](ctx context.Context, c *nexar.Comm, u unevenTrial) error {
	p := &unevenParty[T]{unevenTrial: u, rank: c.Rank(), n: c.Size(), out: u.lengths[0]}
	p.in = p.out
	if p.collective == plan.AllToAll {
		p.out, p.in = p.lengths[p.rank], nil
		for _, row := range p.lengths {
			p.in = append(p.in, row[p.rank])
		}
	}
	p.prepare()
	if p.rank == u.late {
		time.Sleep(lateness)
	}
	if err := p.call(ctx, c); err != nil {
		return err
	}
	return p.check()
}

// prepare allocates the buffers. One that a rank does not need is nil on every other
// rank, and too short for the call on the rest, where it must not change.
func (p *unevenParty[T]) prepare() {
	own, all := p.out[p.rank], sum(p.out)
	ignored := 3 * (p.rank % 2)
	switch p.collective {
	case plan.Gather:
		p.dst, p.src = newGuarded[T](all), newGuarded[T](own)
		if p.rank != p.root {
			p.dst = newGuarded[T](ignored)
		}
	case plan.AllGather:
		p.dst, p.src = newGuarded[T](all), newGuarded[T](own)
	case plan.Scatter:
		p.dst, p.src = newGuarded[T](own), newGuarded[T](all)
		if p.rank != p.root {
			p.src = newGuarded[T](ignored)
		}
	case plan.ReduceScatter:
		p.dst, p.src = newGuarded[T](own), newGuarded[T](all)
	case plan.AllToAll:
		p.dst, p.src = newGuarded[T](sum(p.in)), newGuarded[T](all)
	}
	values := p.kind.values(p.op, p.flavour)
	fill(p.dst.v, values, p.rank, unwritten)
	p.shares = p.inPlace > 0 && p.rank%p.inPlace == 0 && plan.CanBeInPlace(p.collective, p.rank, p.root)
	if p.shares {
		whole, part := &p.dst, &p.src
		if p.collective == plan.Scatter || p.collective == plan.ReduceScatter {
			whole, part = part, whole
		}
		*part = guarded[T]{v: whole.v[sum(p.out[:p.rank]):][:own]}
	}
	fill(p.src.v, values, p.rank, 0)
}

// call makes the call, or starts it and waits for it. A call that has started does not
// need the lengths any more.
func (p *unevenParty[T]) call(ctx context.Context, c *nexar.Comm) error {
	dst, src := p.dst.v, p.src.v
	in, out := append([]int(nil), p.in...), append([]int(nil), p.out...)
	if p.begun {
		h := p.start(ctx, c, dst, src, in, out)
		clear(in)
		clear(out)
		return h.Wait()
	}
	switch p.collective {
	case plan.Gather:
		return nexar.GatherV(ctx, c, dst, src, out, p.root)
	case plan.AllGather:
		return nexar.AllGatherV(ctx, c, dst, src, out)
	case plan.Scatter:
		return nexar.ScatterV(ctx, c, dst, src, out, p.root)
	case plan.ReduceScatter:
		return nexar.ReduceScatterV(ctx, c, dst, src, out, p.op)
	}
	return nexar.AllToAllV(ctx, c, dst, src, in, out)
}

func (p *unevenParty[T]) start(ctx context.Context, c *nexar.Comm, dst, src []T, in, out []int) *nexar.Handle {
	switch p.collective {
	case plan.Gather:
		return nexar.StartGatherV(ctx, c, dst, src, out, p.root)
	case plan.AllGather:
		return nexar.StartAllGatherV(ctx, c, dst, src, out)
	case plan.Scatter:
		return nexar.StartScatterV(ctx, c, dst, src, out, p.root)
	case plan.ReduceScatter:
		return nexar.StartReduceScatterV(ctx, c, dst, src, out, p.op)
	}
	return nexar.StartAllToAllV(ctx, c, dst, src, in, out)
}

// check checks the buffers after the call.
func (p *unevenParty[T]) check() error {
	if err := verify(p.trial, p.dst.v, p.expected()); err != nil {
		return fmt.Errorf("dst: %w", err)
	}
	if err := verify(p.trial, p.src.v, p.untouched()); err != nil {
		return fmt.Errorf("src: %w", err)
	}
	if err := p.dst.check("dst"); err != nil {
		return err
	}
	return p.src.check("src")
}

// untouched returns the expected contents of src: those before the call, except for the
// result of a reduction in place.
func (p *unevenParty[T]) untouched() []segment {
	r := p.rank
	if p.collective != plan.ReduceScatter || !p.shares {
		return []segment{{r, r + 1, 0, len(p.src.v)}}
	}
	at, to := sum(p.out[:r]), sum(p.out[:r+1])
	return []segment{{r, r + 1, 0, at}, {0, p.n, at, to - at}, {r, r + 1, to, len(p.src.v) - to}}
}

// expected returns the expected contents of dst.
func (p *unevenParty[T]) expected() (blocks []segment) {
	at := sum(p.out[:p.rank])
	switch {
	case p.collective == plan.Gather && p.rank != p.root:
		return []segment{{p.rank, p.rank + 1, unwritten, len(p.dst.v)}}
	case p.collective == plan.Scatter:
		return []segment{{p.root, p.root + 1, at, p.out[p.rank]}}
	case p.collective == plan.ReduceScatter:
		return []segment{{0, p.n, at, p.out[p.rank]}}
	}
	for r, n := range p.in {
		at := 0
		if p.collective == plan.AllToAll {
			at = sum(p.lengths[r][:p.rank])
		}
		blocks = append(blocks, segment{r, r + 1, at, n})
	}
	return blocks
}
