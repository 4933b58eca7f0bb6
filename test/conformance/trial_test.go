package conformance

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"

	"github.com/nexar-go/nexar/test/worldtest"
)

// A trial is one collective to run on all ranks.
type trial struct {
	collective plan.Collective
	kind       *kind
	op         nexar.Op
	custom     bool // AllReduceFunc
	flavour    flavour
	count      int // elements of the vector, or of a block
	root       int

	// algorithm is an index of plan.AlgorithmsOn, or -1; then the tuner chooses the
	// algorithm and the number of channels.
	algorithm, channels int

	// late is a rank that calls later than the others, or -1.
	late int

	// started reports whether the collective is started without blocking, and then
	// waited for.
	started bool

	// inPlace, if not 0, gives every inPlace-th rank one buffer instead of two where
	// that is allowed.
	inPlace int
}

// lateness is the delay of the late rank. It is enough for the others to use up their
// credit.
const lateness = 500 * time.Microsecond

func (tr trial) String() string {
	how := "as the tuner says"
	if tr.algorithm >= 0 {
		how = fmt.Sprintf("%s on %d channels", plan.AlgorithmsOn(tr.collective, plan.Hosts{})[tr.algorithm].Name, tr.channels)
	}
	op := tr.op.String()
	if tr.custom {
		op = "affine maps"
	}
	return fmt.Sprintf("%v of %d × %v, %s values, op %s, root %d, %s, rank %d late, started: %v, in place %d",
		tr.collective, tr.count, tr.kind.typ, tr.flavour, op, tr.root, how, tr.late, tr.started, tr.inPlace)
}

// run runs the collective on all ranks and checks all memory that it has, or has not,
// written.
func (tr trial) run(comms []*nexar.Comm) error {
	results := make([][]byte, len(comms))
	err := worldtest.ForEach(len(comms), func(rank int) (err error) {
		results[rank], err = tr.on(context.Background(), comms[rank])
		return err
	})
	if err != nil {
		return fmt.Errorf("%v:\n%w", tr, err)
	}
	return tr.compare(results)
}

// on runs the part of one rank, and returns its result, which compare verifies in some
// trials.
func (tr trial) on(ctx context.Context, c *nexar.Comm) ([]byte, error) { return tr.begin(ctx, c)() }

// begin starts the part of a rank, and end completes it. The next trial may use other
// pins.
func (tr trial) begin(ctx context.Context, c *nexar.Comm) (end func() ([]byte, error)) {
	if tr.algorithm >= 0 {
		a := plan.AlgorithmsOn(tr.collective, hostsOf(c.Size()))[tr.algorithm]
		if err := c.SetAlgorithms(pinName(c, tr.collective, a, tr.channels)); err != nil {
			return func() ([]byte, error) { return nil, err }
		}
		defer unpin(c)
	}
	return tr.kind.try(ctx, c, tr)
}

// compare checks that all ranks have the bits of rank 0, for collectives that guarantee it.
func (tr trial) compare(results [][]byte) error {
	if tr.collective != plan.AllReduce {
		return nil
	}
	for rank, r := range results {
		if !bytes.Equal(r, results[0]) {
			return fmt.Errorf("%v:\nranks 0 and %d have different bits", tr, rank)
		}
	}
	return nil
}

// A party is one rank of a trial, with its buffers for the call.
type party[T nexar.Number] struct {
	trial
	values  []uint64
	rank, n int
	data    guarded[T] // or dst
	input   guarded[T] // src, if it has one
	absent  bool       // this rank does not use data, which is nil in the call
}

func try[T nexar.Number](ctx context.Context, c *nexar.Comm, tr trial) (end func() ([]byte, error)) {
	p := &party[T]{trial: tr, values: tr.kind.values(tr.op, tr.flavour), rank: c.Rank(), n: c.Size()}
	p.prepare()
	if p.rank == tr.late {
		time.Sleep(lateness)
	}
	wait := p.begin(ctx, c)
	return func() ([]byte, error) {
		if err := wait(); err != nil {
			return nil, err
		}
		return bytesOf(p.data.v), p.check()
	}
}

// prepare allocates the buffers. Those that a rank does not need are nil on every other
// rank, and must not change on the rest.
func (p *party[T]) prepare() {
	all := p.n * p.count
	switch p.collective {
	case plan.Gather:
		p.absent = p.rank != p.root && p.rank%2 == 0
		p.data, p.input = newGuarded[T](all), newGuarded[T](p.count)
	case plan.AllGather:
		p.data, p.input = newGuarded[T](all), newGuarded[T](p.count)
	case plan.Scatter:
		p.data, p.input = newGuarded[T](p.count), newGuarded[T](all)
	case plan.ReduceScatter:
		p.data, p.input = newGuarded[T](p.count), newGuarded[T](all)
	case plan.AllToAll:
		p.data, p.input = newGuarded[T](all), newGuarded[T](all)
	default:
		p.data = newGuarded[T](p.count)
		fill(p.data.v, p.values, p.rank, 0)
		return
	}
	fill(p.data.v, p.values, p.rank, unwritten)
	if p.isInPlace() {
		p.share()
	}
	fill(p.input.v, p.values, p.rank, 0)
}

func (p *party[T]) isInPlace() bool {
	return p.inPlace > 0 && p.rank%p.inPlace == 0 && plan.CanBeInPlace(p.collective, p.rank, p.root)
}

// share makes the shorter buffer a block of the longer one.
func (p *party[T]) share() {
	whole, part := &p.data, &p.input
	if len(part.v) > len(whole.v) {
		whole, part = part, whole
	}
	*part = guarded[T]{v: whole.v[p.rank*p.count:][:p.count]}
}

// unwritten is the position of the first value in buffers that are not written yet.
const unwritten = 1 << 30

// begin makes the call, or starts it.
func (p *party[T]) begin(ctx context.Context, c *nexar.Comm) (wait func() error) {
	if p.started {
		return p.start(ctx, c).Wait
	}
	err := p.call(ctx, c)
	return func() error { return err }
}

func (p *party[T]) call(ctx context.Context, c *nexar.Comm) error {
	dst, src := p.data.v, p.input.v
	switch p.collective {
	case plan.Barrier:
		return c.Barrier(ctx)
	case plan.Broadcast:
		return nexar.Broadcast(ctx, c, dst, p.root)
	case plan.Reduction:
		return nexar.Reduce(ctx, c, dst, p.op, p.root)
	case plan.AllReduce:
		if p.custom {
			return nexar.AllReduceFunc(ctx, c, dst, composeAll[T])
		}
		return nexar.AllReduce(ctx, c, dst, p.op)
	case plan.Gather:
		if p.absent {
			dst = nil
		}
		return nexar.Gather(ctx, c, dst, src, p.root)
	case plan.AllGather:
		return nexar.AllGather(ctx, c, dst, src)
	case plan.Scatter:
		if p.rank != p.root && p.rank%2 == 0 {
			src = nil
		}
		return nexar.Scatter(ctx, c, dst, src, p.root)
	case plan.ReduceScatter:
		return nexar.ReduceScatter(ctx, c, dst, src, p.op)
	case plan.AllToAll:
		return nexar.AllToAll(ctx, c, dst, src)
	case plan.Scan:
		return nexar.Scan(ctx, c, dst, p.op)
	case plan.ExclusiveScan:
		return nexar.ExclusiveScan(ctx, c, dst, p.op)
	}
	panic("no such collective")
}

// check checks the buffers after the call.
func (p *party[T]) check() error {
	if p.collective != plan.AllReduce || p.rank == 0 {
		if err := verify(p.trial, p.data.v, p.expected()); err != nil {
			return err
		}
	}
	if err := verify(p.trial, p.input.v, p.untouched()); err != nil {
		return fmt.Errorf("src: %w", err)
	}
	if err := p.data.check("data"); err != nil {
		return err
	}
	return p.input.check("src")
}

// untouched returns the expected contents of src: those before the call, except for the
// result of a reduction in place.
func (p *party[T]) untouched() []segment {
	r := p.rank
	if p.collective != plan.ReduceScatter || !p.isInPlace() {
		return []segment{{r, r + 1, 0, len(p.input.v)}}
	}
	return []segment{
		{r, r + 1, 0, r * p.count},
		{0, p.n, r * p.count, p.count},
		{r, r + 1, (r + 1) * p.count, (p.n - r - 1) * p.count},
	}
}

// expected returns the expected contents of data.
func (p *party[T]) expected() []segment {
	own := segment{p.rank, p.rank + 1, 0, p.count}
	switch p.collective {
	case plan.Broadcast:
		return []segment{{p.root, p.root + 1, 0, p.count}}
	case plan.Reduction:
		if p.rank != p.root {
			return []segment{own}
		}
		return []segment{{0, p.n, 0, p.count}}
	case plan.AllReduce:
		return []segment{{0, p.n, 0, p.count}}
	case plan.Gather, plan.AllGather, plan.AllToAll:
		if p.collective == plan.Gather && p.rank != p.root {
			return []segment{{p.rank, p.rank + 1, unwritten, p.n * p.count}}
		}
		at := 0
		if p.collective == plan.AllToAll {
			at = p.rank * p.count
		}
		var blocks []segment
		for r := range p.n {
			blocks = append(blocks, segment{r, r + 1, at, p.count})
		}
		return blocks
	case plan.Scatter:
		return []segment{{p.root, p.root + 1, p.rank * p.count, p.count}}
	case plan.ReduceScatter:
		return []segment{{0, p.n, p.rank * p.count, p.count}}
	case plan.Scan:
		return []segment{{0, p.rank + 1, 0, p.count}}
	case plan.ExclusiveScan:
		if p.rank == 0 && p.custom {
			return []segment{own}
		}
		return []segment{{0, p.rank, 0, p.count}}
	}
	return []segment{own} // Barrier
}
