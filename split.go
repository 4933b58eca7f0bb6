package nexar

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
)

// Split divides the ranks of a communicator: those that give the same color
// make up a new one, in which they have the order of their keys, and that of
// their ranks here where keys are the same. A rank whose color is negative takes
// part, and gets nil.
//
// All ranks call Split in the same order with other collectives. The new
// communicator has the algorithms, timeouts and other settings of this one and
// is independent of it: neither notices what the other does, fails with it or
// is closed with it. Close it when it is no longer needed. If ctx ends
// before Split returns, the communicator that it was at work on is revoked, be
// it this one or the new one. If this one ends meanwhile, Split fails.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	return c.split(ctx, splitName, color, key, nil)
}

// Dup makes a communicator of the same ranks, for a library that wants one of
// its own. It is called like Split.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	return c.split(ctx, "dup", 0, c.impl.Rank, nil)
}

// Sub makes a communicator of some ranks of this one, in the order of the list.
// All ranks call it, with the same list, as they call Split; those that are not
// in it get nil. Ranks whose lists differ all get the same MismatchError, which has
// the lists of two of them, and the communicator goes on.
func (c *Comm) Sub(ctx context.Context, ranks []int) (*Comm, error) {
	for i, r := range ranks {
		if r < 0 || r >= c.Size() || slices.Contains(ranks[:i], r) {
			return nil, opError("sub", fmt.Errorf("%w: rank %d of %d, at place %d of the list", ErrInvalidRank, r, c.Size(), i))
		}
	}
	key := slices.Index(ranks, c.impl.Rank)
	return c.split(ctx, subName, min(key, 0), key, append([]int{}, ranks...))
}

// A wish is what a rank says to Split.
type wish struct {
	color, key int64
	number     uint64 // of the split
	list       uint64 // a digest of that which Sub was called with; 0 for others
	rank       int64  // its place, whatever that rank says
}

// splitName is the name of all of these in what other ranks say of them, but for
// subName where lists differ.
const (
	splitName = "split"
	subName   = "sub"
)

// split is Split by some name, for ranks that are to agree on a list if it is not
// nil.
func (c *Comm) split(ctx context.Context, name string, color, key int, list []int) (*Comm, error) {
	number, digest := c.children.Add(1), uint64(0)
	if list != nil {
		digest = 1<<32 + uint64(engine.Digest(list))
	}
	wishes := make([]wish, c.Size())
	own := []wish{{color: int64(color), key: int64(key), number: number, list: digest}}
	t := new(task).allGather(c, elementsOf(wishes), elementsOf(own))
	t.label, t.Op = name, splitOp
	id := c.impl.ChildID(number, uint64(color))
	err := c.run(ctx, t)
	if err != nil {
		c.impl.View.Decline(id) // Others may have begun to make it.
		return nil, err
	}
	for r, w := range wishes {
		wishes[r].rank = int64(r)
		switch {
		case w.list != wishes[0].list: // All ranks come here, with the same r.
			return nil, c.listsDiffer(ctx, name, list, r)
		case w.number != number:
			err = fmt.Errorf("%w: it is split number %d of rank %d, and number %d of rank %d", ErrInvalidRank, number, c.impl.Rank, w.number, r)
		}
	}
	if err != nil {
		return nil, opError(name, err)
	}
	if color < 0 {
		return nil, nil
	}
	wishes = slices.DeleteFunc(wishes, func(w wish) bool { return w.color != int64(color) })
	slices.SortFunc(wishes, func(a, b wish) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	ranks := make([]int, len(wishes))
	for i, w := range wishes {
		ranks[i] = c.impl.Ranks[w.rank]
	}
	rank := slices.Index(ranks, c.impl.Ranks[c.impl.Rank])
	// A rank that has failed to split this one does not make the new one, for which the
	// others would wait.
	making, stop := engine.Until(ctx, c.Stopped(), c.Err)
	defer stop()
	child, err := c.impl.View.New(making, id, ranks, rank)
	if p, ok := err.(*PeerError); ok {
		p.Rank = int(wishes[p.Rank].rank) // here, as there is no other communicator
	} else if err != nil && ctx.Err() != nil {
		err = cancelled(ctx)
	}
	if err != nil {
		return nil, opError(name, err)
	}
	return c.node.wrap(child), nil
}

// listsDiffer says what rank 0 and another one have asked for, once all ranks know
// that it is not the same.
func (c *Comm) listsDiffer(ctx context.Context, name string, list []int, other int) error {
	n := c.Size() + 1 // the length, or -1 for a Split, and the list
	own, all := make([]int, n), make([]int, n*c.Size())
	copy(own[1:], list)
	if own[0] = len(list); list == nil {
		own[0] = -1
	}
	t := new(task).allGather(c, elementsOf(all), elementsOf(own))
	t.label, t.Op = name, splitOp
	op, err := c.begin(ctx, t)
	if err != nil {
		return err
	}
	number := op.Number() - 1
	if err := c.end(ctx, t, op); err != nil {
		return err
	}
	call := func(rank int) Call {
		k := Call{Op: splitName, Number: number, Root: -1}
		if told := all[n*rank:][:n]; told[0] >= 0 {
			k.Op, k.Ranks = subName, slices.Clip(told[1:][:min(told[0], c.Size())])
		}
		return k
	}
	return opError(name, &MismatchError{Rank: 0, Peer: other, Call: call(0), PeerCall: call(other)})
}

// WorldRank is the rank that a rank of this communicator has in the world: in
// Node.World, or what Local has returned. It panics if there is no such rank.
func (c *Comm) WorldRank(rank int) int { return c.impl.Ranks[rank] }
