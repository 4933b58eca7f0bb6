package nexar

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/direct"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/profile"
	"github.com/nexar-go/nexar/internal/recorder"
)

// A NodeID is the identity of a node in the cluster. No two nodes ever have
// the same.
type NodeID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id NodeID) String() string { return membership.NodeID(id).String() }

// A Comm is a communicator: an ordered set of ranks that exchange messages and take
// part in collectives. This node is one of the ranks.
//
// All ranks call the same collectives in the same order. Several goroutines may use a Comm
// concurrently, but the order of their collectives must be the same on all ranks. Messages need no
// order.
//
// A collective that fails on one rank ends the communicator on all ranks: operations in
// progress and later ones return an error with the reason.
type Comm struct {
	impl   *comm.Comm
	comm   *engine.Comm      // impl.Engine, which every operation needs
	runner collective.Runner // begins collectives
	node   *nodeState
	labels *profile.Labels // nil: none

	children atomic.Uint64 // splits
	flights  overlap.Flights
	close    func() error // of the node, for Local
}

// A nodeState is the state that the communicators of a node share.
type nodeState struct {
	node     *Node         // nil for Local
	hasState atomic.Bool   // this node has the state of the world, for Sync
	calls    recorder.Log  // the calls of functions
	factory  *comm.Factory // builds communicators

	config      Config // without zero fields that have defaults
	collectives collective.Settings

	direct direct.Registry // of buffers of devices
}

// newNodeState makes the state of a node that is in no view yet.
func newNodeState(m *mesh.Mesh, net cost.Network, cfg Config) (*nodeState, error) {
	f, err := comm.NewFactory(comm.Config{
		Mesh: m, Network: net, Algorithms: cfg.Algorithms, Hints: cfg.hints(), Memory: cfg.Memory, Pool: cfg.Buffers.of(),
		CallTimeout: max(0, cfg.CallTimeout), CallsInFlight: cfg.MaxConcurrentCalls,
		MessageTimeout: max(0, cfg.MessageTimeout), DeadlockTimeout: max(0, cfg.DeadlockTimeout),
		Errors: translator{}, Log: cfg.Log,
	})
	return &nodeState{
		factory: f, config: cfg,
		collectives: collective.Settings{
			Timeout: max(0, cfg.CollectiveTimeout), BarrierTimeout: max(0, cfg.BarrierTimeout),
			ReconfigureTimeout: max(0, cfg.ReconfigureTimeout), Deterministic: cfg.Deterministic,
		},
		direct: direct.Registry{Log: cfg.Log},
	}, err
}

// first makes the communicator of the view with which a world forms.
func (n *nodeState) first(ctx context.Context, view membership.View) (*Comm, error) {
	c, err := n.factory.First(ctx, view)
	if err != nil {
		return nil, err
	}
	n.hasState.Store(true)
	return n.wrap(c), nil
}

// wrap makes the public communicator of one that has been built.
func (n *nodeState) wrap(c *comm.Comm) *Comm {
	w := &Comm{impl: c, comm: c.Engine, node: n, runner: collective.Runner{
		Engine: c.Engine, Selector: c.Selector, Rank: c.Rank, Size: c.Size(), Settings: &n.collectives,
	}}
	if n.config.ProfileLabels {
		w.labels = profile.NewLabels(c.Rank, recorder.CommName(w.comm.ID()))
	}
	return w
}

// Rank returns the rank of this node: 0 ≤ Rank < Size.
func (c *Comm) Rank() int { return c.impl.Rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.impl.Size() }

// ID identifies the communicator: it is the same on all its ranks. Two communicators of a cluster have the
// same ID only with the probability of two equal random numbers of 64 bits.
func (c *Comm) ID() uint64 { return c.comm.ID() }

// Config returns a copy of the configuration of this node, the same for all its communicators, with the
// values that the environment and the defaults have given to zero fields. Token is empty. For [Local] it has the
// fields that Local uses.
func (c *Comm) Config() Config {
	cfg := c.node.config
	cfg.Token = ""
	cfg.Seeds, cfg.Transports, cfg.Algorithms = slices.Clone(cfg.Seeds), slices.Clone(cfg.Transports), slices.Clone(cfg.Algorithms)
	cfg.Factories = slices.Clone(cfg.Factories)
	if cfg.Rank != nil {
		cfg.Rank = new(*cfg.Rank)
	}
	return cfg
}

// Epoch returns the number of the view of the communicator. Later views have higher numbers.
func (c *Comm) Epoch() uint64 { return c.impl.Epoch() }

// Done returns a channel that is closed when the communicator has ended: operations fail
// from then on with the error of [Comm.Err].
func (c *Comm) Done() <-chan struct{} { return c.impl.Stopped() }

// Transport returns the name of the transports between this rank and the others: "mem" within a
// process, "shm", "tcp", "quic", "quic+tcp" if TCP carries the payloads, or "mixed" if they are not the
// same for all ranks; see [Node.Peers]. It changes when a connection goes over to another transport, as after the failure
// of an RDMA device. Once a rank is gone, it is the name at the time when the communicator was made.
func (c *Comm) Transport() string {
	name, _ := c.impl.Common()
	return name
}

// Encrypted reports whether all data between the ranks is encrypted and
// authenticated. Data in one process, or in shared memory, is not. It changes with [Comm.Transport].
func (c *Comm) Encrypted() bool {
	_, encrypted := c.impl.Common()
	return encrypted
}

// Deterministic reports whether [Config].Deterministic of this node is set, also by the environment. All communicators
// of the node have this setting. Libraries that reduce in other ways than the collectives of this package must then
// keep its order of operands, or leave reductions to it.
func (c *Comm) Deterministic() bool { return c.node.collectives.Deterministic }

// HeartbeatTimeout returns the silence after which a peer has failed: [Config].HeartbeatTimeout of this node and two HeartbeatIntervals. Libraries
// that learn of a failure in another way can wait this long for the error that names the rank. It is 0 for
// communicators of [Local], since failures within a process are known at once.
func (c *Comm) HeartbeatTimeout() time.Duration {
	return mesh.SilenceMax(c.node.config.HeartbeatInterval, c.node.config.HeartbeatTimeout)
}

// Close ends the communicator on this rank: operations in progress and later ones return
// [ErrClosed]. It may be called more than once.
//
// Other ranks can still receive messages that this rank has sent, and complete collectives in which
// this rank has returned. Other operations that need this rank fail there with a [PeerError] with
// Left set, and revoke the communicator, possibly before a slow rank has completed an earlier
// collective. If an operation is in progress on this rank, Close revokes the communicator on all
// ranks.
//
// Close ends the contexts of functions that other ranks have called here, and waits for the functions
// for at most a second.
//
// Communicators made by [Comm.Split], [Comm.Dup] or [Comm.Sub] of this one remain usable. Each is
// closed separately, or with the node. Closing a communicator of [Local] also closes its node.
func (c *Comm) Close() error {
	if c.close != nil {
		return c.close() // which ends the communicator too
	}
	c.impl.Close()
	return nil
}

// Err returns nil as long as operations may begin. Once the communicator has ended, it
// returns the error of later operations: a [RevokedError] if one has failed on any rank,
// [ErrClosed] after Close. A rank that has left ends the communicator only when a collective
// needs that rank. If another rank is the cause, the first call blocks until the other
// ranks have confirmed the cause, for at most 500 ms.
func (c *Comm) Err() error {
	err := c.comm.Err()
	if err == nil {
		return nil
	}
	return c.fails(err, func() error { return c.ended(err) })
}

// over returns the error of a call with a context that has ended. The engine checks
// the communicator itself.
func (c *Comm) over(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return cmp.Or(c.Err(), cancelled(ctx))
}

// explain is the return of an operation with ctx that has failed with err, an error of the engine.
func (c *Comm) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	ended, isEnded := errors.AsType[*engine.EndedError](err)
	switch {
	case isEnded:
		err = cmp.Or(c.comm.Err(), ended.Err) // The communicator may have learned a better reason since then.
	case c.translate(err) != nil:
		return c.fails(err, func() error { return opError(op, c.translate(err)) })
	case ctx.Err() != nil: // Some call was cancelled, which ends all that are under way.
		return opError(op, cancelledBy(ctx, err)) // The cause may be the error of another communicator, with other ranks.
	}
	return c.fails(err, func() error { return opError(op, c.ended(err)) })
}

// fails is the return of an operation with an error that public translates from err. Before the program gets the error, fails waits for
// the cause of a loss, and tells the other nodes the rank that is the cause.
//
// Neither the mesh, which decides that a node is gone, nor the engine, which ends operations because of it, can tell the others: an
// orderly end of a node fails only the operations that need it, and most ends fail none; the cause of a loss is known only
// after the end of the operations; and the confirmations of the others must not delay what waits for a decision. So only here it is known that
// the program gets an error, with which cause, and a goroutine of the program can wait.
func (c *Comm) fails(err error, public func() error) error {
	comm.AwaitCause(err)
	err = public()
	if rank, lost := c.blames(err); rank >= 0 && rank != c.impl.Rank {
		c.node.tellCause(c.impl.Nodes[rank].ID, lost, err)
	}
	return err
}

// tellCause tells the other nodes that one of them is the cause of an error, before the program gets the error. The program may end its
// process at once, and would be taken for the cause.
func (n *nodeState) tellCause(cause membership.NodeID, lost bool, err error) {
	n.factory.Mesh().Explain(cause, lost, err.Error())
}

// blames returns the rank that an error names as its cause, or -1, and whether this node has lost it.
func (c *Comm) blames(err error) (rank int, lost bool) {
	if e, ok := errors.AsType[*PeerError](err); ok {
		return e.Rank, !e.Left
	}
	if e, ok := errors.AsType[*RevokedError](err); ok {
		return e.Rank, false
	}
	if e, ok := errors.AsType[*MismatchError](err); ok {
		if e.Rank == c.impl.Rank {
			return e.Peer, false
		}
		return e.Rank, false
	}
	return -1, false
}
