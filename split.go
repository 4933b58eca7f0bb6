package nexar

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/plan"
)

// Split divides the ranks of a communicator: ranks with the same color form a new
// one, ordered by their keys, and by their ranks here if the keys are equal. A rank
// with a negative color takes part, and gets nil.
//
// All ranks call Split in the same order with other collectives. The new
// communicator has the algorithms, timeouts and other settings of this one and is
// independent of it: operations, failures and Close affect one of them only. Close it
// when it is no longer needed. If ctx ends before Split returns, this communicator or
// the new one is revoked, depending on the progress. If this one ends meanwhile,
// Split fails.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	return c.split(ctx, collective.SplitOp, color, key, nil)
}

// Dup makes a communicator of the same ranks, as for a library that needs its own.
// All ranks call it as they call Split.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	return c.split(ctx, collective.DupOp, 0, c.impl.Rank, nil)
}

// Sub makes a communicator of some ranks of this one, in the order of the list.
// All ranks call it, with the same list, as they call Split; ranks that are not in
// the list get nil. If lists differ, all ranks get the same [MismatchError], which has
// two of the lists, and the communicator can still be used. If a rank calls Split or another collective, it cannot.
func (c *Comm) Sub(ctx context.Context, ranks []int) (*Comm, error) {
	for i, r := range ranks {
		if r < 0 || r >= c.Size() || slices.Contains(ranks[:i], r) {
			return nil, opError(subName, fmt.Errorf("%w: rank %d at index %d of the list: must be from 0 to %d and occur once", ErrInvalidRank, r, i, c.Size()-1))
		}
	}
	key := slices.Index(ranks, c.impl.Rank)
	return c.split(ctx, collective.SubOp, min(key, 0), key, append([]int{}, ranks...))
}

// A splitRequest holds the arguments of a rank's Split.
type splitRequest struct {
	color, key int64
	number     uint64 // of the split
	list       uint64 // a digest of the argument of Sub; 0 for the others
	rank       int64  // set by the receiver
}

// subName is the name of Sub in errors about lists.
const subName = "sub"

// split is the public method with an op of fingerprints. If list is not nil, it has to be
// the same on all ranks.
func (c *Comm) split(ctx context.Context, op uint8, color, key int, list []int) (*Comm, error) {
	name, number, digest := collective.OpName(op), c.children.Add(1), uint64(0)
	if list != nil {
		digest = 1<<32 + uint64(engine.Digest(list))
	}
	requests := make([]splitRequest, c.Size())
	own := []splitRequest{{color: int64(color), key: int64(key), number: number, list: digest}}
	t := new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(requests), elementsOf(own), 0, 0)
	t.Op = op
	id := c.impl.ChildID(number, uint64(color))
	err := c.run(ctx, t)
	if err != nil {
		c.impl.View.Decline(id) // Others may have begun to make it.
		return nil, err
	}
	for r, w := range requests {
		requests[r].rank = int64(r)
		switch {
		case w.list != requests[0].list: // All ranks come here, with the same r.
			return nil, c.listsDiffer(ctx, list, r)
		case w.number != number:
			err = fmt.Errorf("%w: this is call %d of Split, Dup or Sub on rank %d and call %d on rank %d: all ranks must make the same calls", ErrInvalidRank, number, c.impl.Rank, w.number, r)
		}
	}
	if err != nil {
		return nil, opError(name, err)
	}
	if color < 0 {
		return nil, nil
	}
	requests = slices.DeleteFunc(requests, func(r splitRequest) bool { return r.color != int64(color) })
	slices.SortFunc(requests, func(a, b splitRequest) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	ranks := make([]int, len(requests))
	for i, w := range requests {
		ranks[i] = c.impl.Ranks[w.rank]
	}
	rank := slices.Index(ranks, c.impl.Ranks[c.impl.Rank])
	// If this communicator ends meanwhile, some rank may not build the new one.
	making, stop := comm.Until(ctx, c.Done(), c.endOfParent)
	defer stop()
	child, err := c.impl.View.New(making, id, ranks, rank)
	switch cause := c.impl.Cause(); {
	case err == nil && (cause == nil || child.Cause() == nil):
		return c.node.wrap(child), nil
	case err == nil: // Another rank has given up the new one.
		child.Close()
		fallthrough
	case cause != nil:
		err = &engine.EndedError{Err: cause}
	}
	return nil, c.explain(ctx, name, err)
}

// endOfParent is why the communicators that are made of this one are given up. It is also the error of the engine, which
// may be the failure of one of their ranks. The text is for ranks that have other numbers there, so it has none.
func (c *Comm) endOfParent() error {
	cause := c.impl.Cause()
	return &kindError{fmt.Errorf("the communicator that it is made of has ended: %s", engine.Outcome(cause)), []error{cause}}
}

// listsDiffer exchanges the lists after all ranks have found that those of rank 0
// and another rank differ, and returns the error about them.
func (c *Comm) listsDiffer(ctx context.Context, list []int, other int) error {
	n := c.Size() + 1 // the length and the list
	own, all := make([]int, n), make([]int, n*c.Size())
	own[0] = len(list)
	copy(own[1:], list)
	t := new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(all), elementsOf(own), 0, 0)
	t.Op = collective.SubOp
	op, err := c.begin(ctx, t)
	if err != nil {
		return err
	}
	number := op.Number() - 1
	if err := c.end(ctx, t, op); err != nil {
		return err
	}
	call := func(rank int) Call {
		told := all[n*rank:][:n]
		return Call{Op: subName, Seq: number, Root: -1, Ranks: slices.Clip(told[1:][:min(told[0], c.Size())])}
	}
	return opError(subName, &MismatchError{Rank: 0, Peer: other, Call: call(0), PeerCall: call(other)})
}

// WorldRank returns the rank in the world of a rank of this communicator. The world
// is [Node.World], or the communicators that [Local] has returned. It panics if rank is
// not a rank of this communicator.
func (c *Comm) WorldRank(rank int) int { return c.impl.Ranks[rank] }

// LocalRanks returns the ranks of this communicator on the host of this node, including its own, in
// ascending order. Processes are on the same host if they share its network, so containers with
// separate networks count as separate hosts.
func (c *Comm) LocalRanks() (ranks []int) {
	own := c.impl.Nodes[c.impl.Rank].Host
	for rank, n := range c.impl.Nodes {
		if rank == c.impl.Rank || own != "" && n.Host == own {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// LocalRank returns the position of this rank in [Comm.LocalRanks], from 0 on, for example
// to choose an accelerator of the host. Other launchers call it LOCAL_RANK.
func (c *Comm) LocalRank() int { return slices.Index(c.LocalRanks(), c.impl.Rank) }

// SplitHost makes a communicator of the ranks on each host, in the order of their ranks
// here, as MPI_Comm_split_type does for MPI_COMM_TYPE_SHARED. All ranks call it as they call
// [Comm.Split].
func (c *Comm) SplitHost(ctx context.Context) (*Comm, error) {
	return c.split(ctx, collective.SplitHostOp, c.LocalRanks()[0], c.impl.Rank, nil)
}
