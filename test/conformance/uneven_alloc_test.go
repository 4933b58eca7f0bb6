package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestUnevenAlloc: the forms that allocate their result return the blocks of all ranks, and the counts.
func TestUnevenAlloc(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, ranks := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, ranks), func(t *testing.T) {
				worldtest.OnAll(t, m.Cluster(t, ranks, nexar.Config{}), func(rank int, c *nexar.Comm) error {
					for _, scale := range []int{0, 1, 30_000} {
						if err := errors.Join(gathersAlloc(t, c, scale), allToAllAlloc(t, c, scale)); err != nil {
							return fmt.Errorf("scale %d: %w", scale, err)
						}
					}
					return nil
				})
			})
		}
	}
}

func gathersAlloc(t *testing.T, c *nexar.Comm, scale int) error {
	n, root := c.Size(), c.Size()-1
	counts, all := make([]int, n), []int32(nil)
	for r := range counts {
		counts[r] = r % 3 * scale
		all = append(all, slices.Repeat([]int32{int32(r)}, counts[r])...)
	}
	own := slices.Repeat([]int32{int32(c.Rank())}, counts[c.Rank()])
	dst, got, err := nexar.AllGatherVAlloc(t.Context(), c, own)
	if err != nil || !slices.Equal(got, counts) || !slices.Equal(dst, all) {
		return fmt.Errorf("all-gather: got counts %v, %d elements and error %w; want counts %v", got, len(dst), err, counts)
	}
	dst, got, err = nexar.GatherVAlloc(t.Context(), c, own, root)
	if c.Rank() != root {
		all = nil
	}
	if err != nil || !slices.Equal(got, counts) || !slices.Equal(dst, all) || (dst == nil) != (all == nil && c.Rank() != root) {
		return fmt.Errorf("gather: got counts %v, %d elements and error %w; want counts %v", got, len(dst), err, counts)
	}
	return nil
}

// allToAllAlloc has the even ranks call AllToAllVAlloc, and then all ranks.
func allToAllAlloc(t *testing.T, c *nexar.Comm, scale int) error {
	n := c.Size()
	count := func(from, to int) int { return (from + 2*to) % 4 * scale }
	var src, want []int32
	in, out := make([]int, n), make([]int, n)
	for r := range n {
		in[r], out[r] = count(r, c.Rank()), count(c.Rank(), r)
		src = append(src, slices.Repeat([]int32{int32(c.Rank())}, out[r])...)
		want = append(want, slices.Repeat([]int32{int32(r)}, in[r])...)
	}
	for _, mixed := range []bool{true, false} {
		dst, got, err := make([]int32, len(want)), in, error(nil)
		if mixed && c.Rank()%2 == 1 {
			err = nexar.AllToAllV(t.Context(), c, dst, src, in, out)
		} else {
			dst, got, err = nexar.AllToAllVAlloc(t.Context(), c, src, out)
		}
		if err != nil || !slices.Equal(got, in) || !slices.Equal(dst, want) {
			return fmt.Errorf("all-to-all: got counts %v, %d elements and error %w; want counts %v", got, len(dst), err, in)
		}
	}
	return nil
}

// TestUnevenAllocWithWrongCounts: if a rank expects another count than one that calls AllToAllVAlloc sends, all ranks get the same error.
func TestUnevenAllocWithWrongCounts(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		var err error
		if rank == 1 {
			err = nexar.AllToAllV(t.Context(), c, make([]int16, 6), make([]int16, 3), []int{1, 1, 4}, []int{1, 1, 1})
		} else {
			_, _, err = nexar.AllToAllVAlloc(t.Context(), c, make([]int16, 3), []int{1, 1, 1})
		}
		if e, ok := errors.AsType[*nexar.CountsError](err); !ok || *e != (nexar.CountsError{From: 2, To: 1, Sent: 1, Expected: 4}) {
			return fmt.Errorf("got %w, want a CountsError of ranks 2 and 1", err)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// TestUnevenAllocOfTooMuch: if a rank tells a negative or an enormous length, the others get an error and allocate nothing.
func TestUnevenAllocOfTooMuch(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	for _, length := range []int{-1, math.MinInt, math.MaxInt, 1<<39 - 4} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 2 {
				_, err := nexar.AllGatherOne(t.Context(), c, length)
				return err
			}
			dst, counts, err := nexar.AllGatherVAlloc(t.Context(), c, make([]int32, 2))
			if !errors.Is(err, nexar.ErrInvalidLength) || dst != nil || counts != nil || !worldtest.HasText(err, "nexar: all_gather_v: invalid length: counts[2] is ") {
				return fmt.Errorf("length %d: got error %w", length, err)
			}
			return nil
		})
	}
	worldtest.CheckWorks(t, comms)
}

// TestUnevenAllocMisuse: a call with a wrong argument fails at once, under its name.
func TestUnevenAllocMisuse(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, c := t.Context(), comms[0]
	_, _, root := nexar.GatherVAlloc(ctx, c, []int{1}, 2)
	_, _, texts := nexar.GatherVAlloc(ctx, c, []string{"a"}, 0)
	_, _, maps := nexar.AllGatherVAlloc(ctx, c, []map[int]int{{1: 1}})
	_, _, counts := nexar.AllToAllVAlloc(ctx, c, []int{1}, []int{1})
	_, _, short := nexar.AllToAllVAlloc(ctx, c, []int{1}, []int{1, 1})
	_, _, negative := nexar.AllToAllVAlloc(ctx, c, []int{1}, []int{2, -1})
	_, _, pointers := nexar.AllToAllVAlloc(ctx, c, []*int{nil}, []int{1, 0})
	for _, test := range []struct {
		err, is error
		text    string
	}{
		{root, nexar.ErrInvalidRank, "nexar: gather_v: invalid rank: root 2 of 2 ranks"},
		{texts, nexar.ErrInvalidType, "nexar: gather_v: invalid type of elements: string contains pointers or uintptrs, which have no meaning in another process: use package objects"},
		{maps, nexar.ErrInvalidType, "nexar: all_gather_v: invalid type"},
		{counts, nexar.ErrInvalidLength, "nexar: all_to_all_v: invalid length: 1 srcCounts for 2 ranks"},
		{short, nexar.ErrInvalidLength, "src has 1 elements, not 2"},
		{negative, nexar.ErrInvalidLength, "srcCounts[1] is -1"},
		{pointers, nexar.ErrInvalidType, "nexar: all_to_all_v: "},
	} {
		if !errors.Is(test.err, test.is) || !worldtest.HasText(test.err, test.text) {
			t.Errorf("got error %v, want %s", test.err, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}
