package nexar

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/membership"
)

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
