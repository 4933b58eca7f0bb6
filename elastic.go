package nexar

import (
	"cmp"
	"context"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous"
)

// Epochs yields the communicator of the world, and after each change of the world
// the one that takes its place:
//
//	for comm, err := range node.Epochs(ctx) {
//		if err != nil {
//			return err
//		}
//		if err = train(ctx, comm, state); err == nil {
//			break
//		}
//		if comm.Err() == nil {
//			return err // It has nothing to do with the others.
//		}
//		log.Print(err) // rank 2 has failed, say; go on with those that are left
//	}
//
// When a node has failed or left, the seed decides who is in the next view:
// all that are linked to each other. They keep their order, so that ranks close
// up. Operations on the old communicator, which end with a PeerError or
// RevokedError, may have been completed on some ranks and not on others: the ranks
// have to agree on where they go on, as by an AllReduce with Min of their steps.
// The old communicator, and those split from it, are of no use any more; Epochs
// closes the former when the loop comes round.
//
// A body that comes round while nothing has changed waits for a change. The loop
// ends with an error if ctx ends, if the node is closed, and with an ErrNoQuorum if
// a node has failed and there is no next view within Config.RecoveryTimeout,
// because the seed is gone, or if the others go on without this node: because they
// have lost it, or because it has not come round within that time when they had.
// Then the program may close the node and join again: see ErrNoQuorum.
// If the communicator has ended for a reason that is no failure of a node, as a
// MismatchError or a call that was cancelled, here or elsewhere, or took too long,
// this is the error if no view has come within Config.HeartbeatTimeout and a
// second more: until then a failure may be behind it. With Config.Recovery Abort or
// Manual a failure ends it with the PeerError; then Comm.Exclude makes a communicator
// of those that are left.
//
// Only one goroutine at a time follows the epochs of a node.
func (n *Node) Epochs(ctx context.Context) iter.Seq2[*Comm, error] {
	return func(yield func(*Comm, error) bool) {
		for c := n.World(); n.follower.IsQuiesced(c.Epoch()) || yield(c, nil); {
			n.rest(c)
			next, err := n.follower.Next(ctx, c.impl)
			if errors.Is(err, rendezvous.ErrLeft) {
				n.leave()
				return
			}
			if err != nil {
				yield(nil, opError("epochs", epochError(ctx, err)))
				return
			}
			c = n.state.wrap(next)
			n.world.Store(c)
		}
	}
}

// epochError says why the epochs of a node are over.
func epochError(ctx context.Context, err error) error {
	_, lost := errors.AsType[*comm.LostError](err)
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx)
	case errors.Is(err, rendezvous.ErrClosed):
		return ErrClosed
	case lost:
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	return err
}

// Checkpoint is where nodes may join and leave a world that works. All ranks of the
// world call it at the same point of their work, as they call a collective, such as
// after each step. It reports whether the world is about to change, the same on all
// ranks: because a node wants to leave, or others want to join. Then the loop over
// Epochs has to come round, which yields the communicator of the next view:
//
//	for comm, err := range node.Epochs(ctx) {
//		if err != nil {
//			return err
//		}
//		done, err := train(ctx, node, comm, &state)
//		if done || err != nil && comm.Err() == nil { // Err: a failure of another node
//			return err
//		}
//	}
//
// where train begins with Sync, ends its work on this communicator with false when
// Checkpoint says that the world changes, even after the last step, since a node that
// joins with it has to hear what there is left to do, and with any error.
//
// A node that has asked to leave, with Leave, is not in that view: there the loop
// ends. All others keep their order, and those that join have the next ranks.
//
// If nothing is to change, Checkpoint costs an all-reduce of a byte. Ranks wait at
// most Config.CheckpointTimeout for others, which are then named in a TimeoutError;
// and as long, when the world changes, for those whose loop has yet to come round,
// which are then removed. If the seed is gone, nothing changes.
func (n *Node) Checkpoint(ctx context.Context) (changed bool, err error) {
	c := n.World()
	n.heed()
	leaves := n.leaving.Load() && !n.node.Session.Gone()
	flag := []uint8{0}
	if leaves || n.node.Session.IsCalled(c.Epoch()) {
		flag[0] = 1
	}
	t := new(task).allReduce(c, elementsOf(flag), Max)
	t.label, t.Op = checkpointName, checkpointOp
	if err := c.run(ctx, t); err != nil || flag[0] == 0 {
		return false, err
	}
	n.leaves = leaves
	n.follower.Quiesce(c.Epoch())
	return true, nil
}

// rest tells the seed that this node is at rest in an epoch, if it is.
func (n *Node) rest(c *Comm) {
	if n.follower.IsQuiesced(c.Epoch()) {
		n.node.Session.Rest(c.Epoch(), n.leaves, c.node.checkpointTimeout)
	}
}

// checkpointName is the name of Checkpoint in what other ranks say of it.
const checkpointName = "checkpoint"

// Leave leaves the world at the next Checkpoint, which does not disturb the other
// ranks, and waits for that: until this node's loop over Epochs has ended. Close
// the node then. If ctx ends before that, the node is still in the world, and leaves
// at a later Checkpoint. Close alone leaves at once, whatever the others are at.
//
// Without a seed nobody can leave in this way, and the error is ErrNoQuorum. If the
// node is closed by then it is ErrClosed.
func (n *Node) Leave(ctx context.Context) error {
	n.leaving.Store(true)
	var err error
	select {
	case <-n.left:
	case <-n.closed:
		err = ErrClosed
	case <-n.node.Session.Ended():
		select {
		case <-n.left:
		case <-n.closed:
			err = ErrClosed
		case <-time.After(leftTimeout): // for the loop over Epochs to hear of it
			err = fmt.Errorf("%w: this node is not in the world any more, or its seed is gone; Close leaves at once", ErrNoQuorum)
		}
	case <-ctx.Done():
		err = cancelled(ctx)
	}
	select {
	case <-n.left:
		return nil // whatever has come after that
	default:
		return opError("leave", err)
	}
}

// leftTimeout is how long it may take, after the seed has said that a node has left,
// until its loop over Epochs ends.
const leftTimeout = time.Second

// A RecoveryEvent says how the world has changed with the epoch of a communicator,
// as this node has seen it: since the communicator that it had before.
type RecoveryEvent struct {
	Epoch         uint64
	OldSize, Size int
	// OldRank is the rank that this node had before, and Rank the one it has. A node
	// that has joined had none: OldRank is -1, and OldSize 0.
	OldRank, Rank int
	// Gone are the old ranks of nodes that have failed or left, and Joined the new
	// ranks of those that have come. Ranks of the others follow from them: they keep
	// their order.
	Gone, Joined []int
}

// Recovery says how the world has come to be that of this communicator. For one that
// Split, Dup or Sub has made it is about the world that this was a part of.
func (c *Comm) Recovery() RecoveryEvent {
	before, now := c.impl.View.Before, c.impl.View.View
	e := RecoveryEvent{Epoch: now.Epoch, OldSize: before.Size(), Size: now.Size(), OldRank: -1}
	self := c.impl.View.Mesh().Self()
	e.Rank, _ = now.Rank(self)
	if rank, was := before.Rank(self); was {
		e.OldRank = rank
	}
	e.Gone, e.Joined = before.Without(now), now.Without(before)
	return e
}

// FailureWatch yields each failure of another node of the world that this one learns
// of, from the beginning on, as the PeerError that operations get which need that
// node; its rank is the one that the node had. A node that leaves is none, unless its
// goodbye does not reach all others: see PeerError. It is for programs that log or count
// failures: who goes on after one, Epochs says.
//
// The loop ends with an error if ctx ends, and without one when the node has left or
// is closed.
func (n *Node) FailureWatch(ctx context.Context) iter.Seq2[*PeerError, error] {
	return func(yield func(*PeerError, error) bool) {
		for seen := 0; ; {
			list, more := n.node.Failures(seen)
			seen += len(list)
			for _, f := range list {
				if !yield(&PeerError{Rank: f.Rank, Node: NodeID(f.Node.ID), Addr: f.Node.Addr(), Err: f.Err}, nil) {
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
				yield(nil, opError("failure watch", cancelled(ctx)))
				return
			}
		}
	}
}

// Exclude makes the communicator of the world without some ranks, and without those
// that have failed or left by then. It is what a program with Config.Recovery Manual
// calls when a rank has failed: all ranks that are to go on call it, on the
// communicator of the world that they had, with the same ranks. Ranks that live are
// removed from the world as well.
//
// The old communicator is closed, and Node.World is the new one. If there is none
// within Config.RecoveryTimeout, the error is ErrNoQuorum. A call that is cancelled
// has told the seed all the same, which goes on without those ranks.
func (c *Comm) Exclude(ctx context.Context, ranks []int) (*Comm, error) {
	for _, r := range ranks {
		if r < 0 || r >= c.Size() || r == c.impl.Rank {
			return nil, opError("exclude", fmt.Errorf("%w: rank %d of %d, on rank %d", ErrInvalidRank, r, c.Size(), c.impl.Rank))
		}
	}
	return c.rebuild(ctx, "exclude", func(n *Node) (*comm.Comm, error) {
		var out []membership.NodeID
		for _, r := range ranks {
			out = append(out, c.impl.Nodes[r].ID)
			n.node.Session.Lost(c.impl.Nodes[r].ID, fmt.Errorf("excluded by rank %d", c.impl.Rank))
		}
		return n.follower.Without(ctx, c.impl, out, n.follower.Timeout)
	})
}

// Include makes the communicator of the world with all nodes that want to join it,
// as at a Checkpoint, and without those that have failed or left by then. All ranks
// call it, on the communicator of the world that they have, which is closed. If
// nobody wants to join, the new one has the same ranks. A call that is cancelled has
// told the seed that this node has nothing more to do with the old one: call Include
// again.
func (c *Comm) Include(ctx context.Context) (*Comm, error) {
	return c.rebuild(ctx, "include", func(n *Node) (*comm.Comm, error) {
		n.leaves = false
		n.follower.Quiesce(c.Epoch())
		n.rest(c)
		return n.follower.Without(ctx, c.impl, nil, 0) // The seed sees to it that others come.
	})
}

// rebuild makes the next communicator of the world of a node.
func (c *Comm) rebuild(ctx context.Context, op string, next func(n *Node) (*comm.Comm, error)) (*Comm, error) {
	n := c.node.node
	switch {
	case n == nil:
		return nil, opError(op, errors.New("a world that Local has made stays as it is: no seed keeps it"))
	case n.World() != c:
		return nil, opError(op, fmt.Errorf("%w: this is not the communicator of the world, which Node.World is", ErrClosed))
	}
	world, err := next(n)
	if err != nil {
		return nil, opError(op, epochError(ctx, err))
	}
	n.world.Store(c.node.wrap(world))
	return n.World(), nil
}

// Sync hands the state of a rank to all others, whatever they have: of the first rank
// that has it, which is one of those with which the world has formed, or to which a
// Sync has handed it. So after a change of the world, of which Epochs tells, those that
// have joined, and those that a failure has caught at another step, go on where it is.
//
// State is of the same type on all ranks, and one of these:
//
//   - a slice of numbers, or of structs without pointers, of the same length
//     everywhere;
//   - a pointer to such a slice, which gets the length that it has on rank 0;
//   - a pointer to a number, or to an array or struct without pointers;
//   - an encoding.BinaryMarshaler that is an encoding.BinaryUnmarshaler as well.
//
// All ranks call Sync as they call a collective. If it fails, each rank has either the
// state that it had or the new one, whole, save that of a BinaryUnmarshaler that fails
// half way. For that a rank takes as much memory again as the state has. If no rank
// has the state, because all have gone that had it, the error is ErrNoState: to begin
// anew would undo what the world has done.
func Sync(ctx context.Context, c *Comm, state any) error {
	s, isMarshaler := state.(marshaler)
	r, isRegion := kernel.RegionOf(state)
	if !isMarshaler && !isRegion {
		return opError(syncName, fmt.Errorf("%w: %T is not a slice of elements without pointers, a pointer to one or to an element, nor a binary marshaler and unmarshaler",
			ErrInvalidType, state))
	}
	root, err := c.stateRoot(ctx)
	switch {
	case err != nil:
	case isMarshaler:
		err = c.syncMarshaled(ctx, s, root)
	default:
		err = c.syncRegion(ctx, r, root)
	}
	if err == nil {
		c.node.hasState.Store(true)
	}
	return err
}

// stateRoot is the first rank that has the state.
func (c *Comm) stateRoot(ctx context.Context) (int, error) {
	first := []int64{int64(c.Size())}
	if c.node.hasState.Load() {
		first[0] = int64(c.impl.Rank)
	}
	t := new(task).allReduce(c, elementsOf(first), Min)
	t.label, t.Op = syncName, syncOp
	if err := c.run(ctx, t); err != nil {
		return 0, err
	}
	if int(first[0]) == c.Size() {
		return 0, opError(syncName, ErrNoState)
	}
	return int(first[0]), nil
}

// syncName is the name of Sync in what other ranks say of it.
const syncName = "sync"

// A marshaler is a state that makes bytes of itself.
type marshaler interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// sync hands memory of the same size over.
func (c *Comm) sync(ctx context.Context, mem []byte, root int) error {
	t := new(task).broadcast(c, elements{at: unsafe.SliceData(mem), n: len(mem), of: element{opaque, 1}}, root)
	t.label = syncName
	return c.run(ctx, t)
}

// syncBytes hands bytes over, of which only the root knows how many.
func (c *Comm) syncBytes(ctx context.Context, b []byte, root int) ([]byte, error) {
	n := []uint64{uint64(len(b))}
	if err := c.sync(ctx, bytesOf(n), root); err != nil {
		return nil, err
	}
	if n[0] > math.MaxInt {
		return nil, opError(syncName, fmt.Errorf("%w: %d bytes", ErrTooLarge, n[0]))
	}
	if c.impl.Rank != root {
		b = make([]byte, n[0])
	}
	return b, c.sync(ctx, b, root)
}

// syncRegion hands memory over, and has a rank change its own when all of it has come.
func (c *Comm) syncRegion(ctx context.Context, r kernel.Region, root int) (err error) {
	b := r.Bytes()
	switch {
	case r.Grows():
		b, err = c.syncBytes(ctx, b, root)
	case c.impl.Rank == root:
		err = c.sync(ctx, b, root)
	default:
		b = make([]byte, len(b))
		err = c.sync(ctx, b, root)
	}
	if err != nil || c.impl.Rank == root {
		return err
	}
	return opError(syncName, r.Set(b))
}

// syncMarshaled hands over what a state makes of itself. That it makes nothing is
// told to all.
func (c *Comm) syncMarshaled(ctx context.Context, state marshaler, root int) (err error) {
	var b []byte
	var bad error
	failed := []uint8{0}
	if c.impl.Rank == root {
		if b, bad = state.MarshalBinary(); bad != nil {
			failed[0] = 1
		}
	}
	if err := c.sync(ctx, failed, root); err != nil {
		return err
	}
	if failed[0] != 0 {
		return opError(syncName, cmp.Or(bad, fmt.Errorf("rank %d could not marshal its state", root)))
	}
	if b, err = c.syncBytes(ctx, b, root); err != nil || c.impl.Rank == root {
		return err
	}
	return opError(syncName, state.UnmarshalBinary(b))
}
