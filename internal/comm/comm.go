// Package comm builds the communicators of a node, and follows the world from view to view.
//
// A node has one [Factory], which builds the communicator of all ranks of a view.
// [ViewContext.New] builds communicators of a part of the ranks. All ranks of a communicator
// build it concurrently, since it begins with a negotiation. A [Follower] waits for views and
// lets the Factory build their communicators.
package comm

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/mesh/blame"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rpc"
	"github.com/nexar-go/nexar/internal/selector"
)

// A Comm is a communicator: an ordered set of ranks of one view, with the engine that
// carries out their operations. This node is one of the ranks.
type Comm struct {
	View     *ViewContext
	Engine   *engine.Comm
	Selector *selector.Selector
	Calls    *rpc.Service

	Rank  int
	Ranks []int             // by rank, the rank in the view
	Nodes []membership.Node // by rank

	group     *mesh.Group
	transport string // see Common; as it was at the beginning
	encrypted bool

	reached negotiate.Result
	carrier *engine.Comm  // carries calls as messages
	stopped chan struct{} // closed after cause is set
	cause   error
	endedAt time.Time // set with cause
	closing callback.Once
}

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.Nodes) }

// Epoch returns the number of the view of the communicator.
func (c *Comm) Epoch() uint64 { return c.View.View.Epoch }

// AwaitCause blocks until the cause of the loss of a rank, if that is an err, is known or cannot be known, for at most 500 ms after the loss.
// Errors that a program gets are translated afterwards.
func AwaitCause(err error) {
	if loss, ok := errors.AsType[*mesh.LossError](err); ok {
		<-loss.Known()
	}
}

// LossOf returns the cause of the failure of a rank: its rank, the suspects if one of several nodes is
// the cause, and the error that names it. Until the cause is known, it is the rank itself. A cause outside
// the communicator is in the error alone.
func (c *Comm) LossOf(failed int, failure error) (rank int, suspects []blame.Suspect, err error) {
	loss, ok := errors.AsType[*mesh.LossError](failure)
	if !ok {
		return failed, nil, failure
	}
	cause := loss.Cause()
	rank = failed
	if named := c.RankOf(cause.Node); named >= 0 {
		rank = named
	}
	return rank, cause.Suspects, cause.Err
}

// RankOf returns the rank of a node, or -1 if it has none.
func (c *Comm) RankOf(id membership.NodeID) int {
	return slices.IndexFunc(c.Nodes, func(n membership.Node) bool { return n.ID == id })
}

// Stopped returns a channel that is closed when no further operation may begin.
func (c *Comm) Stopped() <-chan struct{} { return callback.Closed(c.stopped) }

// Cause returns the error of the engine that has stopped the communicator, or nil.
func (c *Comm) Cause() error {
	select {
	case <-c.stopped:
		return c.cause
	default:
		return nil
	}
}

// Close closes the communicator on this rank. It waits up to [SettleTimeout] for
// functions that other ranks have called here.
func (c *Comm) Close() {
	c.closing.Do(func() {
		c.Engine.Close()
		if c.carrier != nil {
			c.carrier.Close()
			c.View.settle(c.Calls)
		}
		if c.reached.Part != negotiate.NoPart {
			c.View.allocator.Return(c.reached.Part)
		}
	})
}

// machine returns the ranks on this machine, including this one.
func (c *Comm) machine() (ranks []int) {
	own := host.Machine(c.Nodes[c.Rank].Host)
	for rank, n := range c.Nodes {
		if own != "" && host.Machine(n.Host) == own {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Hosts returns the distribution of the ranks over hosts.
func (c *Comm) Hosts() plan.Hosts {
	names := make([]string, c.Size())
	for rank, n := range c.Nodes {
		names[rank] = n.Host
	}
	return plan.HostsOf(names)
}

// Arguments of engine.ID, which derives the id of a communicator from that of another one.
const (
	controlID = "vote"
	trialID   = "trial"
	callsID   = "calls"
	viewID    = "view"
	childID   = "child"
)

// ChildID returns the id of the communicator of a color of a split of c.
func (c *Comm) ChildID(split, color uint64) uint64 {
	return engine.ID(c.Engine.ID(), childID, split, color)
}

// New builds a communicator of ranks, which are ranks of the view. This node is ranks[rank].
// All of them call New concurrently with the same id. The error is one of the engine, a [mesh.UnreachableError], or the
// cause of ctx. Each communicator translates it into ranks of its own.
func (v *ViewContext) New(ctx context.Context, id uint64, ranks []int, rank int) (*Comm, error) {
	c, err := v.build(ctx, id, ranks, rank)
	if b, ok := errors.AsType[*buildError](err); ok {
		err = b.err
	}
	return c, err
}

// A buildError is an error of New while comm is built.
type buildError struct {
	comm *Comm
	err  error
}

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

// translated translates a buildError for users of the communicator.
func translated(err error) error {
	if b, ok := errors.AsType[*buildError](err); ok {
		AwaitCause(b.err)
		return b.comm.View.errors.Translate(b.comm, b.err)
	}
	return err
}

// build is New without the translation of a buildError.
func (v *ViewContext) build(ctx context.Context, id uint64, ranks []int, rank int) (*Comm, error) {
	g, err := v.mesh.Group(v.View, ranks)
	hops := v.hops(g, ranks)
	c := &Comm{
		View: v, group: g, Nodes: g.Nodes, Rank: rank, Ranks: ranks, Selector: selector.New(rank, len(ranks), v.Pool, cost.New(v.network).Over(hops)),
		reached: negotiate.Result{Part: negotiate.NoPart}, stopped: make(chan struct{}),
	}
	if err != nil {
		v.Decline(id)
		return nil, &buildError{c, err}
	}
	c.Engine = v.engine.NewComm(id, rank, g.Links)
	c.Engine.Watch(engine.Watcher{Ended: c.stop})
	c.transport, c.encrypted, _ = g.Common()
	cfg := c.negotiation(hops)
	cfg.Control = v.engine.NewComm(engine.ID(id, controlID), rank, g.Links)
	defer cfg.Control.Close()
	c.trace(cfg.Control)
	if hops == nil {
		cfg.Trial = v.trialComm(engine.ID(id, trialID), rank, cfg.Hosts, g.Links)
	}
	if cfg.Trial != nil {
		defer cfg.Trial.Close()
	}
	c.reached, err = negotiate.Run(ctx, cfg)
	if err != nil {
		c.abandon(id, err)
		return nil, &buildError{c, err}
	}
	c.Engine.Spread(c.machine(), shmexec.Processors())
	c.Selector.Pin(v.pins)
	c.Selector.UseHints(v.config.Hints)
	c.serve(v.engine.NewLooseComm(engine.ID(id, callsID), rank, g.Links))
	return c, nil
}

// stop records the cause. The engine calls it once.
func (c *Comm) stop(cause error) {
	c.cause, c.endedAt = cause, time.Now()
	close(c.stopped)
}

// abandon ends a communicator after its negotiation has failed on this rank. It notifies the
// other ranks, where the negotiation may have succeeded.
func (c *Comm) abandon(id uint64, err error) {
	c.Engine.Cancel(err)
	c.Close()
	c.View.engine.NewLooseComm(engine.ID(id, callsID), c.Rank, c.Engine.Links()).Close()
}

// SettleTimeout bounds the wait of Close for functions that other ranks have called.
const SettleTimeout = time.Second
