package nexar

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// Epochs yields the communicator of the world and, after each change of the world, the
// communicator that replaces it:
//
//	for comm, err := range node.Epochs(ctx) {
//		if err != nil {
//			return err
//		}
//		if err = train(ctx, comm, state); err == nil {
//			break
//		}
//		if comm.Err() == nil {
//			return err // train failed for a reason of its own.
//		}
//		log.Print(err) // For example, rank 2 has failed: continue without it.
//	}
//
// When a node has failed or left, the seed decides the next view, in which all nodes are connected
// to each other. The remaining nodes keep their order, and their ranks are contiguous; see
// [Comm.Change]. Operations on the old communicator fail with a [PeerError] or a [RevokedError]. They
// may have completed on some ranks only, so the ranks must agree where to continue, for example by
// [Sync], or by an [AllReduce] with [Min] of their steps. The old communicator and those split from
// it cannot be used any more. Epochs closes the old communicator at the next iteration.
//
// If the body of the loop ends and the world has not changed, Epochs blocks until it changes. Another goroutine may make calls on the
// communicator meanwhile, but not after Reconfigure has returned true: if another rank makes a collective then, both get a
// [MismatchError]. Before that, ranks in a call that waits for this one get a [DeadlockError] after [Config].DeadlockTimeout. It ends
// without an error after [Node.Leave]. Otherwise the last iteration has an error:
//
//   - the cause of ctx or, after its deadline, a [DeadlineError], when ctx ends. The node stays in the world, and a later loop begins with the
//     communicator of [Node.World].
//   - [ErrClosed], when the node is closed.
//   - [ErrNoQuorum], if a node has failed and there is no next view within [Config].RecoveryTimeout,
//     for example because no seed can be reached.
//   - [ErrRemoved], which is also an [ErrNoQuorum], if the others continue without this node: they have
//     lost their connections to it, or it did not start the next iteration within that time. Operations end with it, too, unless they
//     have noticed lost connections before. Operations of the others that need this node get a [PeerError] that says that the seed has
//     removed it. The program may close the node and join again.
//   - the reason for the end of the communicator, if the world has not changed: a [MismatchError], or a
//     call that was cancelled or timed out on some rank, or a [DeadlockError] that includes this loop. An undetected failure may be the cause, so
//     Epochs waits for a next view for [Comm.HeartbeatTimeout] and a second first. If a node has left a world of a sparse
//     topology, it waits for two HeartbeatTimeouts more, and at least 2 s: the node tells the seed when its goodbyes have arrived.
//   - the [PeerError] of a failed node, if [Config].Recovery is [Abort] or [Manual]. With Manual,
//     [Comm.Exclude] makes a communicator of the remaining ranks.
//
// Only one goroutine at a time may range over the epochs of a node.
func (n *Node) Epochs(ctx context.Context) iter.Seq2[*Comm, error] {
	return func(yield func(*Comm, error) bool) { n.epochs(ctx, yield) }
}

// epochs calls the body of a loop over the epochs.
func (n *Node) epochs(ctx context.Context, yield func(*Comm, error) bool) {
	n.ranges.Add(1)
	defer n.ranges.Add(-1)
	for c := n.World(); n.follower.IsQuiesced(c.Epoch()) || yield(c, nil); {
		n.reportQuiesced(c)
		_, limited := ctx.Deadline()
		w := &engine.WorldWait{Op: collective.EpochsOp, Ordered: n.follower.IsQuiesced(c.Epoch()), Limited: limited}
		done := c.comm.AwaitWorld(w)
		next, err := n.follower.Next(ctx, c.impl)
		done()
		if errors.Is(err, client.ErrLeft) {
			n.node.Mesh.LeaveWorld()
			n.leave()
			return
		}
		if err != nil {
			yield(nil, opError("epochs", epochError(ctx, c.comm.WorldCause(ctx, w), err)))
			return
		}
		c = n.state.wrap(next)
		n.setWorld(c)
	}
}

// epochsFunction is the name of Node.epochs on a stack.
const epochsFunction = "github.com/nexar-go/nexar.(*Node).epochs"

// epochError returns the error with which the epochs of a node end. The cause is that of ctx.
func epochError(ctx context.Context, cause, err error) error {
	_, lost := errors.AsType[*comm.LostError](err)
	removed, isRemoved := errors.AsType[*client.RemovedError](err)
	switch {
	case ctx.Err() != nil:
		return cancelledBy(ctx, cause)
	case errors.Is(err, handshake.ErrClosed):
		return errClosedHere
	case isRemoved:
		return removedError(err, removed.Excluded)
	case lost:
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	return err
}

// removedError makes err, which says that this node was removed, an ErrRemoved.
func removedError(err error, excluded bool) error {
	kinds := []error{ErrRemoved, ErrNoQuorum}
	if excluded {
		kinds = append(kinds, ErrExcluded)
	}
	return &kindError{err, kinds}
}

// Reconfigure lets nodes join and leave the world. All ranks of the world call it at the same point
// of the program, as they call a collective, for example after each step. It returns true on all
// ranks if nodes want to join or leave, or if the seed has removed a rank although no operation has failed. The
// program must then go to the next iteration of [Node.Epochs], which gets the communicator of the next view:
//
//	for comm, err := range node.Epochs(ctx) {
//		if err != nil {
//			return err
//		}
//		done, err := train(ctx, node, comm, &state)
//		if done || err != nil && comm.Err() == nil { // comm.Err is not nil after a failure
//			return err
//		}
//	}
//
// Here train begins with [Sync] and calls Reconfigure after each step. When Reconfigure returns true,
// train returns with done false, even after the last step, because nodes that join need the state.
//
// Reconfigure does not save the state of the program. A node that has called [Node.Leave] is not in
// the next view, and its loop ends without an error. The others keep their order, and nodes that
// join get the ranks after them.
//
// If nothing changes, Reconfigure costs an all-reduce of one byte. It blocks until all ranks have
// called it; after [Config].ReconfigureTimeout it returns a [TimeoutError] that names the late ranks.
// A cancelled call ends the communicator on all ranks, as for any collective. When the world changes,
// ranks that do not start the next iteration within ReconfigureTimeout are removed. If no seed can be
// reached, the world does not change.
func (n *Node) Reconfigure(ctx context.Context) (changed bool, err error) {
	c := n.World()
	n.heed()
	n.reconfiguring.Add(1)
	defer n.reconfiguring.Add(-1)
	n.reconfigured.Add(1)
	leaves := n.leaving.Load() && !n.node.Session.Gone()
	flag := []uint8{0}
	if leaves || n.node.Session.IsQuiescing(c.Epoch()) {
		flag[0] = 1
	}
	t := new(task).OnVector(&c.runner, plan.AllReduce, elementsOf(flag), kernel.Max, 0)
	t.Op = collective.ReconfigureOp
	if err := c.run(ctx, t); err != nil || flag[0] == 0 {
		return false, err
	}
	n.isLeaver = leaves
	n.follower.Quiesce(c.Epoch())
	return true, nil
}

// reportQuiesced tells the seed if this node has quiesced in the epoch of c.
func (n *Node) reportQuiesced(c *Comm) {
	if n.follower.IsQuiesced(c.Epoch()) {
		if n.isLeaver {
			n.node.Mesh.LeaveWorld()
		}
		n.node.Session.Quiesced(c.Epoch(), n.isLeaver, c.node.collectives.ReconfigureTimeout)
	}
}

// Leave makes this node leave the world at the next [Node.Reconfigure], so that no operation of
// another rank fails. Leave blocks until the loop of this node over [Node.Epochs] has ended, so call
// it on another goroutine than the loop, and close the node afterwards. After an error the
// node is still in the world, and leaves at a later Reconfigure. To leave at once, even if operations
// of other ranks need this node, call [Node.Close].
//
// If no other goroutine ranges over Epochs, Leave fails with a [DeadlockError] that names this rank alone when no goroutine of this node
// has called Reconfigure for [Config].DeadlockTimeout. The timeouts of other ranks that wait for this one name Leave as its call, unless it
// is in a collective.
//
// The error is [ErrNoQuorum] if no seed can be reached, [ErrRemoved] if this node is not in the world any more, and
// [ErrClosed] if the node is closed meanwhile.
func (n *Node) Leave(ctx context.Context) error {
	n.leaving.Store(true)
	err := n.awaitLeft(ctx)
	select {
	case <-n.left:
		return nil // The node has left, even if another event has occurred as well.
	default:
		return opError("leave", err)
	}
}

// awaitLeft waits until the loop over the epochs has ended because this node has left the world.
func (n *Node) awaitLeft(ctx context.Context) error {
	defer n.showLeave()()
	var late <-chan time.Time
	if limit := n.state.config.DeadlockTimeout; limit > 0 {
		ticker := time.NewTicker(limit)
		defer ticker.Stop()
		late = ticker.C
	}
	inLoop := callback.HasCaller(epochsFunction)
	for {
		reconfigured := n.reconfigured.Load()
		select {
		case <-n.left:
			return nil
		case <-n.closed:
			return errClosedHere
		case <-n.node.Session.Ended():
			_, err := n.node.Session.Next(ctx, math.MaxUint64)
			if _, removed := errors.AsType[*client.RemovedError](err); removed {
				return epochError(ctx, nil, err)
			}
			select {
			case <-n.left:
				return nil
			case <-n.closed:
				return errClosedHere
			case <-time.After(comm.NoticeTimeout): // The loop over Epochs ends once it knows that this node has left.
				return fmt.Errorf("%w: %w; call Close to leave at once", ErrNoQuorum, err)
			}
		case <-ctx.Done():
			return cancelled(ctx)
		case <-late:
			if (inLoop || n.ranges.Load() == 0) && n.reconfiguring.Load() == 0 && n.reconfigured.Load() == reconfigured {
				return n.World().waitsForItself(&wire.Wait{Kind: wire.WaitCollective, For: uint64(n.state.config.DeadlockTimeout), Call: wire.Call{Op: collective.LeaveOp}})
			}
		}
	}
}

// showLeave adds a Leave to the calls that this rank is in, until done is called.
func (n *Node) showLeave() (done func()) {
	w := &engine.WorldWait{Op: collective.LeaveOp, Local: true}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaves[w] = n.World().comm.AwaitWorld(w)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.leaves[w]()
		delete(n.leaves, w)
	}
}

// A WorldChange describes the difference between the world of an epoch and that of the previous epoch
// of this node. See [Comm.Change].
type WorldChange struct {
	Epoch         uint64
	OldSize, Size int
	// OldRank is the rank of this node in the previous epoch, and Rank its rank in this one. If the
	// node has just joined, OldRank is -1 and OldSize is 0.
	OldRank, Rank int
	// Removed has the old ranks of nodes that have failed or left, and Joined the new ranks of nodes
	// that have joined. The other nodes keep their order.
	Removed, Joined []int
}

// Change returns the difference between the world of this communicator's epoch and the world before.
// It describes the whole world, also if the communicator has only some of its ranks.
func (c *Comm) Change() WorldChange {
	before, now := c.impl.View.Before, c.impl.View.View
	e := WorldChange{Epoch: now.Epoch, OldSize: before.Size(), Size: now.Size(), OldRank: -1}
	self := c.impl.View.Mesh().Self()
	e.Rank, _ = now.Rank(self)
	if rank, was := before.Rank(self); was {
		e.OldRank = rank
	}
	e.Removed, e.Joined = before.Without(now), now.Without(before)
	return e
}

// Failures yields the failures of other nodes that this node has detected or been told of: first all
// earlier ones, then blocks for each new one. The [PeerError] is the one that operations
// return, with the rank that the node had. A node that leaves in good order has not failed. Use
// Failures to log or count failures, and [Node.Epochs] to continue after them. Several goroutines may
// range over Failures, and each gets all failures.
//
// The loop ends with the cause of ctx when ctx ends, and without an error when this node has left or
// is closed.
func (n *Node) Failures(ctx context.Context) iter.Seq2[*PeerError, error] {
	return func(yield func(*PeerError, error) bool) {
		for seen := 0; ; {
			list, more := n.node.Failures(seen)
			seen += len(list)
			for _, f := range list {
				err := &PeerError{Rank: f.Rank, Node: NodeID(f.Node.ID), Addr: f.Node.Addr(), Err: f.Err}
				n.state.tellCause(f.Node.ID, true, err)
				if !yield(err, nil) {
					return
				}
			}
			select {
			case <-more:
			case <-n.left:
				return
			case <-n.closed:
				return
			case <-ctx.Done():
				yield(nil, opError("failures", cancelled(ctx)))
				return
			}
		}
	}
}

// Exclude returns the communicator of the world without the given ranks, and without ranks that have
// failed or left meanwhile. All remaining ranks call it on [Node.World] with the same ranks, after a
// failure with the policy [Manual], or to remove live ranks, such as one on a slow host. It blocks
// until all remaining ranks have called it.
//
// The seed counts each call as lost links between the caller and the given ranks, and removes the fewest nodes
// that have lost their links to others. So if one rank alone excludes several, the seed removes that rank: its calls
// fail with an [ErrRemoved].
//
// On a live rank that is excluded, operations and [Node.Epochs] end with an [ErrExcluded] that
// names a rank that has called Exclude. A rank that wants to leave calls [Node.Leave] instead.
//
// The old communicator is closed, and [Node.World] returns the new one. If live ranks are removed, calls in progress on
// communicators with them fail with a [PeerError] that names one of them. The error is [ErrInvalidRank]
// for a rank outside the communicator or this rank itself, [ErrClosed] if c is not the communicator of
// [Node.World], [ErrNoQuorum] if there is no new view within [Config].RecoveryTimeout, and [ErrExcluded] if
// this rank has been excluded. If a rank that is not excluded calls a collective instead, all ranks get a
// [MismatchError]. After that or a cancelled call the ranks may still be excluded, since the seed has been told.
func (c *Comm) Exclude(ctx context.Context, ranks []int) (*Comm, error) {
	for _, r := range ranks {
		if r < 0 || r >= c.Size() || r == c.impl.Rank {
			return nil, opError("exclude", fmt.Errorf("%w: rank %d: must be from 0 to %d and not the calling rank, %d", ErrInvalidRank, r, c.Size()-1, c.impl.Rank))
		}
	}
	return c.rebuild(ctx, collective.ExcludeOp, ranks, func(ctx context.Context, n *Node) (*comm.Comm, error) {
		var out []membership.NodeID
		for _, r := range ranks {
			out = append(out, c.impl.Nodes[r].ID)
			n.node.Session.Exclude(c.impl.Nodes[r].ID)
		}
		return n.follower.Without(ctx, c.impl, out, n.follower.Timeout)
	})
}

// Include returns the communicator of the world with all nodes that wait to join, and without nodes
// that have failed or left meanwhile. It is for programs that do not range over [Node.Epochs]; others
// use [Node.Reconfigure]. All ranks call it on [Node.World], and it blocks until they have. The old
// communicator is closed, and [Node.World] returns the new one. If no node waits, the new one has the
// same ranks. The errors are those of [Comm.Exclude], a [MismatchError] if a rank calls another collective, and after
// [Config].ReconfigureTimeout a [TimeoutError] that names the late ranks. After such an error or a cancelled call the old communicator
// cannot be used any more: call Include again.
func (c *Comm) Include(ctx context.Context) (*Comm, error) {
	const op = collective.IncludeOp
	if err := c.isWorld(collective.OpName(op)); err != nil {
		return nil, err
	}
	// All ranks begin together, unless the communicator ends by the failure of one: then the seed makes a view without it.
	if c.Err() == nil {
		t := new(task).OnVector(&c.runner, plan.AllReduce, elementsOf([]uint8{0}), kernel.Max, 0)
		t.Op = op
		err := c.run(ctx, t)
		if _, isGone := errors.AsType[*PeerError](err); err != nil && !isGone {
			return nil, err
		}
	}
	return c.rebuild(ctx, op, nil, func(ctx context.Context, n *Node) (*comm.Comm, error) {
		n.isLeaver = false
		n.follower.Quiesce(c.Epoch())
		n.reportQuiesced(c)
		return n.follower.Without(ctx, c.impl, nil, 0) // The seed invites the nodes that wait.
	})
}

// rebuild replaces the communicator of the world by the one that next returns. All ranks not in without call the same method. If one of
// them makes another call, the context of next ends.
func (c *Comm) rebuild(ctx context.Context, op uint8, without []int, next func(ctx context.Context, n *Node) (*comm.Comm, error)) (*Comm, error) {
	name := collective.OpName(op)
	if err := c.isWorld(name); err != nil {
		return nil, err
	}
	n := c.node.node
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &engine.WorldWait{Op: op, Ordered: true, Without: without, Mismatched: cancel}
	defer c.comm.AwaitWorld(w)()
	world, err := next(waiting, n)
	if differs, ok := errors.AsType[*engine.MismatchError](context.Cause(waiting)); ok && err != nil {
		return nil, c.explain(ctx, name, differs)
	}
	if err != nil {
		return nil, opError(name, epochError(ctx, c.comm.WorldCause(ctx, w), err))
	}
	n.setWorld(c.node.wrap(world))
	return n.World(), nil
}

// isWorld returns an error unless this is the communicator of the world that the seed can change.
func (c *Comm) isWorld(op string) error {
	switch n := c.node.node; {
	case n == nil:
		return opError(op, errors.New("the world of Local cannot change: it has no seed; use Join or, in tests, nexartest.New"))
	case n.World() != c:
		return opError(op, fmt.Errorf("%w: this communicator is not the current one of the world: call the method on Node.World()", ErrClosed))
	}
	return nil
}
