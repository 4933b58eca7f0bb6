package nexar

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nexar-go/nexar/internal/comm"
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
