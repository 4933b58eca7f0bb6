package nexar

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
)

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
	var t task
	err = t.vector(plan.AllReduce, elementsOf(flag))
	if err == nil {
		err = t.setOp(Max, c.Size())
	}
	t.label, t.Op = checkpointName, checkpointOp
	if err := c.run(ctx, &t, err); err != nil || flag[0] == 0 {
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
