package collective

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// CountMax is more than the largest number of units in all blocks of a call; see [Element.Counted].
const CountMax = 1 << 39

// OnBlocksV is OnBlocks with a block of counts[r] elements for each rank r. It does not keep counts. One of dst and src is a block.
func (t *Task) OnBlocksV(r *Runner, kind plan.Collective, dst, src Elements, counts []int, op kernel.Op, root int) *Task {
	t.Uneven = &exec.Uneven{}
	d := t.blocks(r, kind, &dst, &src, root)
	_, t.Elem = dst.Of.Counted(0)
	starts, longest, err := r.Starts("counts", counts, dst.Of)
	if t.Require(err); t.Err != nil {
		return t
	}
	t.Uneven.Starts, t.Uneven.Longest, t.Digest, t.Total = starts, longest, engine.Digest(starts), starts[r.Size]
	return t.part(r, d, dst, src, counts[r.Rank], Sum(counts), starts[r.Rank]).setOp(r, d, op)
}

// Starts returns where the blocks of counts begin, followed by the end of the last one, and the
// length of the longest block, in units of [Element.Counted]. name is that of counts in errors.
func (r *Runner) Starts(name string, counts []int, of Element) (starts []int, longest int, err error) {
	each, _ := of.Counted(1)
	if len(counts) != r.Size {
		return nil, 0, fmt.Errorf("%w: %d %s for %d ranks", ErrLength, len(counts), name, r.Size)
	}
	starts = make([]int, 1, len(counts)+1)
	for i, n := range counts {
		switch {
		case n < 0:
			return nil, 0, fmt.Errorf("%w: %s[%d] is %d: must not be negative", ErrLength, name, i, n)
		case n > (CountMax-1-starts[i])/each:
			return nil, 0, fmt.Errorf("%w: %s[%d] is %d: all blocks together have at most %d elements", ErrLength, name, i, n, (CountMax-1)/each)
		}
		starts = append(starts, starts[i]+n*each)
		longest = max(longest, n*each)
	}
	return starts, longest, nil
}

// Sum returns the sum of counts.
func Sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// AllToAllV is AllToAll with blocks of different lengths. Before Begin, the ranks must exchange their
// counts, and the caller passes those of all ranks to SetCounts.
func (t *Task) AllToAllV(r *Runner, dst, src Elements, dstCounts, srcCounts []int) *Task {
	t.Uneven = &exec.Uneven{}
	t.blocks(r, plan.AllToAll, &dst, &src, 0)
	_, t.Elem = dst.Of.Counted(0)
	in, out, err := []int(nil), []int(nil), t.Err
	if err == nil {
		in, _, err = r.Starts("dstCounts", dstCounts, dst.Of)
	}
	if err == nil {
		out, _, err = r.Starts("srcCounts", srcCounts, src.Of)
	}
	t.Uneven.Starts, t.Uneven.Inputs = in, out
	t.Require(err)
	t.Require(checkLength("dst", dst.N, Sum(dstCounts))).Require(checkLength("src", src.N, Sum(srcCounts)))
	return t.setApart()
}

// SetCounts completes the task of an AllToAllV. all has, for each rank, the counts of the blocks that
// it expects, followed by the counts of those that it sends.
func (t *Task) SetCounts(all []int, size int, of Element) {
	each, _ := of.Counted(1)
	t.Uneven.Longest, t.Digest = slices.Max(all)*each, engine.Digest(all)
	for r := range size {
		t.Total += Sum(all[2*r*size:][:size]) * each
	}
}
