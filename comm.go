package nexar

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/tune"
	"github.com/nexar-go/nexar/internal/wire"
)

// A NodeID is the identity of a node in the cluster. No two nodes ever have
// the same.
type NodeID [16]byte

// String is the form in which a NodeID is written: 32 hexadecimal digits.
func (id NodeID) String() string { return member.NodeID(id).String() }

// A Comm is a communicator: an ordered set of ranks, of which this node is
// one, that exchange messages and take part in collectives.
//
// All ranks call the same collectives in the same order. Calls on one Comm
// from several goroutines at once are safe, but then it is the caller who has
// to see to the order. Messages need no order.
//
// A collective that fails on one rank ends the communicator on all of them:
// what is under way and what is called later returns an error that says why.
type Comm struct {
	comm      *engine.Comm
	epoch     uint64
	rank      int
	nodes     []member.Node
	transport string
	encrypted bool

	choose            func(tune.Need) tune.Choice // of a tune.Tuner
	pool              *bufpool.Pool
	collectiveTimeout time.Duration
	barrierTimeout    time.Duration
	log               *slog.Logger
	close             func() error // of the node, for Local

	mu       sync.Mutex
	programs map[programKey]*engine.Program
}

type programKey struct {
	kind  plan.Collective
	index int
	root  int
}

// Rank is the rank of this node: 0 ≤ Rank < Size.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return len(c.nodes) }

// Epoch is the number of the view that the communicator belongs to.
func (c *Comm) Epoch() uint64 { return c.epoch }

// Transport is the name of the transport between the ranks: "quic" or "mem".
func (c *Comm) Transport() string { return c.transport }

// Encrypted reports whether what the ranks send to each other is encrypted
// and authenticated. What stays in one process is not.
func (c *Comm) Encrypted() bool { return c.encrypted }

// Close ends the communicator on this rank. Operations that are under way,
// and later ones, return ErrClosed; ranks that wait for this one in an
// operation get an ErrRevoked. Closing a communicator made by Local also
// closes its node.
func (c *Comm) Close() error {
	c.comm.Close()
	if c.close != nil {
		return c.close()
	}
	return nil
}

// Barrier returns when every rank has called it. If ctx ends first, the
// communicator is revoked on all ranks.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.run(ctx, task{kind: plan.Barrier})
}

// customOp is the op in the fingerprint of AllReduceFunc.
const customOp = 255

// A task is a collective to run, with its parameters checked.
type task struct {
	kind    plan.Collective
	typ     kernel.Type
	op      uint8 // kernel.Op or customOp; 0 if nothing is reduced
	root    int
	count   int  // elements of the vector, or of a block
	blocks  bool // chunks are blocks of count elements
	data    []byte
	input   []byte
	first   int // chunk that data begins with
	inFirst int // chunk that input begins with
	reduce  func(dst, a, b []byte)
	ordered bool
}

// run carries a task out.
func (c *Comm) run(ctx context.Context, t task) error {
	name := t.name()
	if err := context.Cause(ctx); err != nil {
		c.comm.Cancel(err) // The other ranks would wait in vain.
		return opError(name, err)
	}
	timeout := c.collectiveTimeout
	if t.kind == plan.Barrier {
		timeout = c.barrierTimeout
	}
	op, err := c.comm.Start(c.work(t, timeout))
	if err == nil {
		err = op.Wait(ctx)
	}
	return c.explain(name, err)
}

func (t *task) name() string {
	if t.op == customOp {
		return "all_reduce_func"
	}
	return t.kind.String()
}

// work chooses how to carry a task out.
func (c *Comm) work(t task, timeout time.Duration) engine.Work {
	elem := 1
	if t.typ != 0 {
		elem = t.typ.Size()
	}
	need := tune.Need{Collective: t.kind, Size: c.Size(), Bytes: t.count * elem, Blocks: t.blocks, Ordered: t.ordered}
	if t.blocks {
		need.Bytes *= c.Size()
	}
	choice := c.choose(need)
	return engine.Work{
		Call: wire.Call{
			Kind: uint8(t.kind), Type: uint8(t.typ), Op: t.op, Root: uint32(t.root), Count: uint64(t.count),
			Plan: uint8(choice.Index), Channels: uint16(choice.Channels),
		},
		Program:  c.program(t, choice),
		Channels: choice.Channels,
		Layout:   engine.Layout{Elem: elem, Count: t.count, Blocks: t.blocks},
		Data:     t.data, DataFirst: t.first,
		Input: t.input, InputFirst: t.inFirst,
		Pool:   c.pool,
		Reduce: t.reduce, Timeout: timeout,
	}
}

// program returns the compiled plan of this rank.
func (c *Comm) program(t task, choice tune.Choice) *engine.Program {
	key := programKey{t.kind, choice.Index, t.root}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.programs[key]
	if p == nil {
		p = engine.Compile(choice.Algorithm.Plan(c.rank, c.Size(), t.root), c.Size())
		c.programs[key] = p
	}
	return p
}

// hasRoot reports whether a collective has a root.
func hasRoot(k plan.Collective) bool {
	switch k {
	case plan.Broadcast, plan.Reduction, plan.Gather, plan.Scatter:
		return true
	}
	return false
}

// planName is how a fingerprint says that a call is carried out.
func planName(k plan.Collective, index, channels int) string {
	list := plan.Algorithms(k)
	if index >= len(list) {
		return "an unknown algorithm"
	}
	if channels == 1 {
		return list[index].Name
	}
	return list[index].Name + " on several channels"
}
