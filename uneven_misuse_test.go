package nexar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestInvalidUneven: a wrong argument is an error that says which and why, at
// once and on this rank alone: the communicator goes on.
func TestInvalidUneven(t *testing.T) {
	comms := overMem.cluster(t, 3, Config{})
	c, ctx := comms[0], t.Context()
	ints, counts := make([]int32, 9), []int{2, 3, 4}
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"gather_v", GatherV(ctx, c, ints, make([]int32, 2), []int{2, 3}, 0), ErrInvalidLength, "2 counts for 3 ranks"},
		{"all_gather_v", AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, 3, 4, 0}), ErrInvalidLength, "4 counts for 3 ranks"},
		{"scatter_v", ScatterV(ctx, c, ints, ints, nil, 0), ErrInvalidLength, "0 counts for 3 ranks"},
		{"reduce_scatter_v", ReduceScatterV(ctx, c, ints, ints, nil, Sum), ErrInvalidLength, "0 counts for 3 ranks"},
		{"all_to_all_v", AllToAllV(ctx, c, ints, make([]int32, 9), nil, counts), ErrInvalidLength, "0 dstCounts for 3 ranks"},
		{"all_to_all_v", AllToAllV(ctx, c, ints, make([]int32, 9), counts, []int{9}), ErrInvalidLength, "1 srcCounts for 3 ranks"},

		{"gather_v", GatherV(ctx, c, ints, make([]int32, 2), []int{2, -1, 8}, 0), ErrInvalidLength, "counts[1] is -1"},
		{"all_to_all_v", AllToAllV(ctx, c, ints, ints, counts, []int{-4, 9, 4}), ErrInvalidLength, "srcCounts[0] is -4"},
		{"scatter_v", ScatterV(ctx, c, ints[:2], ints, []int{2, 7, math.MinInt}, 0), ErrInvalidLength, fmt.Sprint("counts[2] is ", math.MinInt)},
		// Together they are 9 again, if nobody looks.
		{"all_gather_v", AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, math.MaxInt, math.MaxInt}), ErrInvalidLength, "counts[1] is"},
		{"all_gather_v", AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, 1 << 38, 1 << 38}), ErrInvalidLength, "counts[2] is"},
		{"gather_v", GatherV(ctx, c, make([][1 << 20]byte, 1), nil, []int{0, 1, 1 << 20}, 0), ErrInvalidLength, "counts[2] is 1048576"},

		{"gather_v", GatherV(ctx, c, ints, make([]int32, 2), counts, 3), ErrInvalidRank, "root 3 of 3 ranks"},
		{"scatter_v", ScatterV(ctx, c, make([]int32, 2), ints, counts, -1), ErrInvalidRank, "root -1 of 3 ranks"},
		{"gather_v", GatherV(ctx, c, ints, make([]int32, 3), counts, 0), ErrInvalidLength, "src has 3 elements, not 2"},
		{"gather_v", GatherV(ctx, c, ints[1:], make([]int32, 2), counts, 0), ErrInvalidLength, "dst has 8 elements, not 9"},
		{"all_gather_v", AllGatherV(ctx, comms[2], ints, make([]int32, 2), counts), ErrInvalidLength, "src has 2 elements, not 4"},
		{"all_gather_v", AllGatherV(ctx, c, nil, make([]int32, 2), counts), ErrInvalidLength, "dst has 0 elements, not 9"},
		{"scatter_v", ScatterV(ctx, comms[1], make([]int32, 2), nil, counts, 0), ErrInvalidLength, "dst has 2 elements, not 3"},
		{"scatter_v", ScatterV(ctx, c, make([]int32, 2), ints[:3], counts, 0), ErrInvalidLength, "src has 3 elements, not 9"},
		{"reduce_scatter_v", ReduceScatterV(ctx, c, nil, ints, counts, Sum), ErrInvalidLength, "dst has 0 elements, not 2"},
		{"reduce_scatter_v", ReduceScatterV(ctx, c, make([]int32, 2), ints[:8], counts, Sum), ErrInvalidLength, "src has 8 elements, not 9"},
		{"reduce_scatter_v", ReduceScatterV(ctx, c, make([]float32, 2), make([]float32, 9), counts, BitOr), ErrInvalidOp, "bit_or of float32"},
		{"all_to_all_v", AllToAllV(ctx, c, ints[:8], make([]int32, 9), counts, counts), ErrInvalidLength, "dst has 8 elements, not 9"},
		{"all_to_all_v", AllToAllV(ctx, c, ints, make([]int32, 8), counts, counts), ErrInvalidLength, "src has 8 elements, not 9"},

		{"gather_v", GatherV(ctx, c, ints, ints[1:3], counts, 0), ErrOverlap, "src shares memory with dst, of which it may only be block 0"},
		{"gather_v", GatherV(ctx, comms[1], ints, ints[1:4], counts, 1), ErrOverlap, "of which it may only be block 1"},
		{"all_gather_v", AllGatherV(ctx, comms[2], ints, ints[4:8], counts), ErrOverlap, "of which it may only be block 2"},
		{"scatter_v", ScatterV(ctx, comms[1], ints[:3], ints, counts, 1), ErrOverlap, "dst shares memory with src, of which it may only be block 1"},
		{"reduce_scatter_v", ReduceScatterV(ctx, comms[1], ints[3:6], ints, counts, Sum), ErrOverlap, "of which it may only be block 1"},
		{"all_to_all_v", AllToAllV(ctx, c, ints, ints, counts, counts), ErrOverlap, "dst and src share memory"},
		{"all_to_all_v", AllToAllV(ctx, c, ints[:5], ints[4:], []int{5, 0, 0}, []int{5, 0, 0}), ErrOverlap, "dst and src share memory"},

		{"gather_v", StartGatherV(ctx, c, ints, ints[1:3], counts, 0).Wait(), ErrOverlap, "block 0"},
		{"all_gather_v", StartAllGatherV(ctx, c, ints, ints[:2], nil).Wait(), ErrInvalidLength, "0 counts"},
		{"scatter_v", StartScatterV(ctx, c, ints, ints, counts, 0).Wait(), ErrInvalidLength, "dst has 9 elements, not 2"},
		{"reduce_scatter_v", StartReduceScatterV(ctx, c, ints[:2], ints, counts, 99).Wait(), ErrInvalidOp, ""},
		{"all_to_all_v", StartAllToAllV(ctx, c, ints, ints, counts, counts).Wait(), ErrOverlap, "dst and src share memory"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: "+test.name+": ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	stillWorks(t, comms)
}

// inAll is how errors have the lengths of blocks.
func inAll(counts []int) string { return fmt.Sprintf("%d × uint16", sum(counts)) }

func gatherVOf(root int, counts ...int) call {
	return call{fmt.Sprintf("gather_v #2 (%s, root %d)", inAll(counts), root), func(ctx context.Context, c *Comm) error {
		return GatherV(ctx, c, make([]uint16, sum(counts)), make([]uint16, counts[c.Rank()]), counts[:c.Size()], root)
	}}
}

func allGatherVOf(counts ...int) call {
	return call{fmt.Sprintf("all_gather_v #2 (%s)", inAll(counts)), func(ctx context.Context, c *Comm) error {
		return AllGatherV(ctx, c, make([]uint16, sum(counts)), make([]uint16, counts[c.Rank()]), counts)
	}}
}

func scatterVOf(root int, counts ...int) call {
	return call{fmt.Sprintf("scatter_v #2 (%s, root %d)", inAll(counts), root), func(ctx context.Context, c *Comm) error {
		return ScatterV(ctx, c, make([]uint16, counts[c.Rank()]), make([]uint16, sum(counts)), counts, root)
	}}
}

func reduceScatterVOf(op Op, counts ...int) call {
	return call{fmt.Sprintf("reduce_scatter_v #2 (%s, %v)", inAll(counts), op), func(ctx context.Context, c *Comm) error {
		return ReduceScatterV(ctx, c, make([]uint16, counts[c.Rank()]), make([]uint16, sum(counts)), counts, op)
	}}
}

var allToAllVCall = call{"all_to_all_v #2", func(ctx context.Context, c *Comm) error {
	ones := slices.Repeat([]int{1}, c.Size())
	return AllToAllV(ctx, c, make([]uint16, c.Size()), make([]uint16, c.Size()), ones, ones)
}}

// TestMismatchOfCounts: if ranks give different counts, or make a call for blocks
// of different lengths and another one, all get an error that says so.
func TestMismatchOfCounts(t *testing.T) {
	for i, calls := range [][2]call{
		{gatherVOf(0, 1, 2, 3), gatherVOf(0, 1, 2, 4)},
		{gatherVOf(0, 1, 2, 3), gatherVOf(0, 3, 2, 1)},
		{gatherVOf(1, 40_000, 2, 3), gatherVOf(1, 39_999, 3, 3)},
		{gatherVOf(0, 1, 2, 3), gatherVOf(2, 1, 2, 3)},
		{gatherVOf(0, 4, 4, 4), gatherOf(8, 0)},
		{gatherVOf(0, 1, 2, 3), scatterVOf(0, 1, 2, 3)},
		{scatterVOf(2, 0, 0, 7), scatterVOf(2, 0, 7, 0)},
		{scatterVOf(0, 0, 0, 0), scatterVOf(0, 0, 0, 1)},
		{allGatherVOf(1, 2, 3), allGatherVOf(1, 3, 2)},
		{allGatherVOf(1, 0, 100_000), allGatherVOf(0, 1, 100_000)},
		{allGatherVOf(1, 2, 3), reduceScatterVOf(Sum, 1, 2, 3)},
		{reduceScatterVOf(Sum, 1, 2, 3), reduceScatterVOf(Max, 1, 2, 3)},
		{reduceScatterVOf(Sum, 1, 2, 3), reduceScatterVOf(Sum, 2, 1, 3)},
		{allToAllVCall, barrierCall},
		{allToAllVCall, allToAllOf(1)},
		// What the ranks exchange for it is as long.
		{allToAllVCall, allGatherOf(6)},
	} {
		for odd := range 3 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", calls[0].text, odd, calls[1].text), func(t *testing.T) {
				t.Parallel()
				m := overMem
				switch (i + odd) % 5 {
				case 0:
					m = overLinks
				case 1:
					m = overQUIC
				}
				mismatch(t, m, 3, odd, calls[0], calls[1])
			})
		}
	}
}

// TestMismatchOfElementsToAll: the counts of an all-to-all go together, but the
// elements do not.
func TestMismatchOfElementsToAll(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	onAll(t, comms, func(rank int, c *Comm) error {
		counts := []int{3, 3}
		err := AllToAllV(ctx, c, make([]float32, 6), make([]float32, 6), counts, counts)
		if err == nil && rank == 0 {
			err = AllToAllV(ctx, c, make([]float32, 6), make([]float32, 6), counts, counts)
		} else if err == nil {
			err = AllToAllV(ctx, c, make([]int32, 6), make([]int32, 6), counts, counts)
		}
		for err == nil {
			err = c.Barrier(ctx)
		}
		if _, ok := errors.AsType[*MismatchError](err); !ok || !strings.Contains(err.Error(), "rank 1 called all_to_all_v #4 (12 × int32") {
			return fmt.Errorf("%w, want a MismatchError with what rank 1 called", err)
		}
		return nil
	})
}

// TestCountsThatDisagree: if a rank sends another one more or less than that
// expects, all ranks get the same error, whoever of them it concerns, and the
// communicator goes on.
func TestCountsThatDisagree(t *testing.T) {
	for _, test := range []struct {
		ranks int
		// wrong are pairs of ranks, of which the first expects so many more from
		// the second than that sends.
		wrong map[[2]int]int
		want  CountsError
	}{
		{1, map[[2]int]int{{0, 0}: 1}, CountsError{From: 0, To: 0, Sent: 7, Expected: 8}},
		{2, map[[2]int]int{{1, 0}: -1}, CountsError{From: 0, To: 1, Sent: 7, Expected: 6}},
		{3, map[[2]int]int{{2, 2}: -7}, CountsError{From: 2, To: 2, Sent: 7, Expected: 0}},
		{5, map[[2]int]int{{4, 3}: 2, {1, 4}: 100_000, {3, 0}: 1}, CountsError{From: 4, To: 1, Sent: 7, Expected: 100_007}},
	} {
		for _, m := range []medium{overMem, overLinks, overQUIC} {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.name, test.ranks), func(t *testing.T) {
				comms := m.cluster(t, test.ranks, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for _, begin := range []bool{false, true} {
					onAll(t, comms, func(rank int, c *Comm) error {
						in, out := slices.Repeat([]int{7}, c.Size()), slices.Repeat([]int{7}, c.Size())
						for pair, more := range test.wrong {
							if pair[0] == rank {
								in[pair[1]] += more
							}
						}
						dst := slices.Repeat([]int16{-1}, sum(in))
						err := error(nil)
						if begin {
							err = StartAllToAllV(ctx, c, dst, make([]int16, sum(out)), in, out).Wait()
						} else {
							err = AllToAllV(ctx, c, dst, make([]int16, sum(out)), in, out)
						}
						e, ok := errors.AsType[*CountsError](err)
						want := fmt.Sprintf("nexar: all_to_all_v: invalid length: rank %d sends 7 elements to rank %d, which expects %d", test.want.From, test.want.To, test.want.Expected)
						if !ok || *e != test.want || !errors.Is(err, ErrInvalidLength) || err.Error() != want {
							return fmt.Errorf("got %w, want %s", err, want)
						}
						if slices.Contains(dst, 0) {
							return errors.New("dst was written")
						}
						return nil
					})
					stillWorks(t, comms)
				}
			})
		}
	}
}

// TestUnevenInFlight: many can be under way at once, of different counts, and be
// waited for in any order.
func TestUnevenInFlight(t *testing.T) {
	for _, m := range []medium{overMem, overLinks, overQUIC} {
		t.Run(m.name, func(t *testing.T) {
			const ranks, rounds = 4, 12
			comms := m.cluster(t, ranks, Config{Deterministic: true})
			onAll(t, comms, func(rank int, c *Comm) error {
				var begun []*Handle
				var results [][]int64
				var counts []int
				for round := range rounds {
					counts = []int{round, 0, 20_000 * (round % 2), 3}
					own := slices.Repeat([]int64{int64(100*round + rank)}, counts[rank])
					gathered, all := make([]int64, sum(counts)), make([]int64, sum(counts))
					back := make([]int64, counts[rank])
					begun = append(begun, StartAllGatherV(t.Context(), c, gathered, own, counts))
					begun = append(begun, StartGatherV(t.Context(), c, all, own, counts, round%ranks))
					begun = append(begun, StartReduceScatterV(t.Context(), c, back, make([]int64, sum(counts)), counts, Sum))
					results = append(results, gathered)
					if rank == round%ranks {
						results = append(results, all)
					} else {
						results = append(results, gathered)
					}
					clear(counts)
				}
				slices.Reverse(begun)
				if err := WaitAll(begun...); err != nil {
					return err
				}
				for i, got := range results {
					round := i / 2
					counts = []int{round, 0, 20_000 * (round % 2), 3}
					var want []int64
					for r, n := range counts {
						want = append(want, slices.Repeat([]int64{int64(100*round + r)}, n)...)
					}
					if !slices.Equal(got, want) {
						return fmt.Errorf("round %d: %d elements are not as they were sent", round, len(want))
					}
				}
				return nil
			})
		})
	}
}
