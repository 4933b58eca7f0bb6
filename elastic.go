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
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
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
// When a node has failed or left, the seed decides the next view: a set of nodes
// that all have links to each other. They keep their order, so that the ranks stay
// contiguous. Operations on the old communicator end with a [PeerError] or
// [RevokedError]. They may have been completed on some ranks and not on others, so
// the ranks have to agree where to continue, as by an AllReduce with Min of their
// steps. The old communicator, and those split from it, cannot be used any more.
// Epochs closes the former at the next iteration of the loop.
//
// An iteration that ends while nothing has changed waits for a change. The loop
// ends with an error if ctx ends or the node is closed. It ends with [ErrNoQuorum]
// if a node has failed and there is no next view within Config.RecoveryTimeout, as
// without a seed, and if the others continue without this node: they have lost it,
// or it has not started the next iteration within that time. Then the program may
// close the node and join again: see [ErrNoQuorum].
//
// The communicator may also end by a [MismatchError], or by a call that was cancelled
// or took too long, here or elsewhere. Since an undetected failure may be the
// reason, Epochs waits for a view, for Config.HeartbeatTimeout and a second more,
// before it returns this error. With Config.Recovery Abort or Manual a failure ends
// the loop with the PeerError; with Manual, Comm.Exclude then makes a communicator
// of the other ranks.
//
// Only one goroutine at a time follows the epochs of a node.
func (n *Node) Epochs(ctx context.Context) iter.Seq2[*Comm, error] {
	return func(yield func(*Comm, error) bool) {
		for c := n.World(); n.follower.IsQuiesced(c.Epoch()) || yield(c, nil); {
			n.reportQuiesced(c)
			next, err := n.follower.Next(ctx, c.impl)
			if errors.Is(err, client.ErrLeft) {
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

// epochError returns the error with which the epochs of a node end.
func epochError(ctx context.Context, err error) error {
	_, lost := errors.AsType[*comm.LostError](err)
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx)
	case errors.Is(err, handshake.ErrClosed):
		return ErrClosed
	case lost:
		return fmt.Errorf("%w: %w", ErrNoQuorum, err)
	}
	return err
}

// Checkpoint lets nodes join and leave the world. All ranks of the world call it at
// the same point of their work, as they call a collective, such as after each step.
// It reports whether the world is about to change, with the same result on all
// ranks: because a node wants to leave, or others want to join. Then the loop over
// Epochs has to start its next iteration, which gets the communicator of the next
// view:
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
// Here train begins with Sync. It returns false when Checkpoint reports a change,
// even after the last step, since a node that joins has to learn the state, and it
// returns any error.
//
// A node that has called Leave is not in the next view: its loop ends. All others
// keep their order, and nodes that join have the next ranks.
//
// If nothing changes, Checkpoint costs an all-reduce of a byte. Ranks wait at most
// Config.CheckpointTimeout for others, which are then named in a TimeoutError. When
// the world changes, ranks that do not start the next iteration within that time
// are removed. Without a seed, nothing changes.
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

// reportQuiesced tells the seed that this node has quiesced in the epoch of c, if it
// has.
func (n *Node) reportQuiesced(c *Comm) {
	if n.follower.IsQuiesced(c.Epoch()) {
		n.node.Session.Rest(c.Epoch(), n.leaves, c.node.checkpointTimeout)
	}
}

// checkpointName is the name of Checkpoint in errors.
const checkpointName = "checkpoint"

// Leave leaves the world at the next Checkpoint, which does not disturb the other
// ranks, and waits until this node's loop over Epochs has ended. Close the node
// then. If ctx ends before that, the node is still in the world, and leaves at a
// later Checkpoint. Close alone leaves at once, also while the others need the node.
//
// Without a seed the error is ErrNoQuorum. If the node is closed meanwhile it is
// ErrClosed.
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
		return nil // It takes precedence over the other events.
	default:
		return opError("leave", err)
	}
}

// leftTimeout limits the time from the end of a node's session, as after it has
// left, to the end of its loop over Epochs.
const leftTimeout = time.Second

// A RecoveryEvent describes how the world has changed with the epoch of a
// communicator, compared with the previous communicator of this node.
type RecoveryEvent struct {
	Epoch         uint64
	OldSize, Size int
	// OldRank is the previous rank of this node, and Rank its present one. For a node
	// that has joined OldRank is -1, and OldSize 0.
	OldRank, Rank int
	// Gone are the old ranks of nodes that have failed or left, and Joined the new
	// ranks of nodes that have joined. The others keep their order, which gives their
	// ranks.
	Gone, Joined []int
}

// Recovery describes how the world has changed with this communicator. For one made
// by Split, Dup or Sub it describes the change of the whole world.
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

// FailureWatch yields each failure of another node of the world that this node
// learns of, from the beginning on. The PeerError is that of operations that need
// the failed node, with the rank that it had. A node that leaves has not failed,
// unless its goodbye does not reach all others: see PeerError. FailureWatch is for
// programs that log or count failures; Epochs is for those that continue after one.
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

// Exclude makes the communicator of the world without some ranks, and without ranks
// that have failed or left meanwhile. A program with Config.Recovery Manual calls it
// when a rank has failed: all remaining ranks call it, on their communicator of the
// world, with the same ranks. Excluded ranks that live are removed from the world.
//
// The old communicator is closed, and Node.World is the new one. If there is none
// within Config.RecoveryTimeout, the error is ErrNoQuorum. The seed is told before
// Exclude waits, so a cancelled call excludes the ranks, too.
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
// as at a Checkpoint, and without nodes that have failed or left meanwhile. All ranks
// call it, on their communicator of the world, which is closed. If no node wants to
// join, the new one has the same ranks. After a cancelled call the old communicator
// cannot be used any more: call Include again.
func (c *Comm) Include(ctx context.Context) (*Comm, error) {
	return c.rebuild(ctx, "include", func(n *Node) (*comm.Comm, error) {
		n.leaves = false
		n.follower.Quiesce(c.Epoch())
		n.reportQuiesced(c)
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

// Sync replaces the state of all ranks by that of the first rank that has the
// current one. A node with which the world has formed has it, and so has every node
// after a Sync. Call Sync after a change of the world, when Epochs has yielded a
// communicator: nodes that have joined, and nodes that a failure has interrupted at
// another step, then continue from the same state.
//
// State has the same type on all ranks, which is one of these:
//
//   - a slice of numbers, or of structs without pointers, of the same length
//     everywhere;
//   - a pointer to such a slice, which gets the length that it has on that rank;
//   - a pointer to a number, or to an array or struct without pointers;
//   - an encoding.BinaryMarshaler that is an encoding.BinaryUnmarshaler as well.
//
// All ranks call Sync as they call a collective. If it fails, each rank has either its
// old state or all of the new one, except after an error of its BinaryUnmarshaler. To
// that end Sync needs as much memory again as the state. If all ranks that had the
// state have gone, the error is ErrNoState: starting again from the beginning is up to
// the program.
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

// stateRoot finds the first rank that has the state.
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

// syncName is the name of Sync in errors.
const syncName = "sync"

// A marshaler is a state that encodes itself.
type marshaler interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// sync broadcasts memory of the same size.
func (c *Comm) sync(ctx context.Context, mem []byte, root int) error {
	t := new(task).broadcast(c, elements{at: unsafe.SliceData(mem), n: len(mem), of: element{opaque, 1}}, root)
	t.label = syncName
	return c.run(ctx, t)
}

// syncBytes broadcasts the number of bytes, and then the bytes.
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

// syncRegion broadcasts memory. A rank replaces its own when all of it has arrived.
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

// syncMarshaled broadcasts the encoding of a state. All ranks learn that the root
// could not encode it.
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
