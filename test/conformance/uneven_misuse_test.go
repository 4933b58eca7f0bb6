package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestInvalidUneven: an invalid argument is an error that names it and the reason, at
// once and on this rank alone. The communicator goes on.
func TestInvalidUneven(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	c, ctx := comms[0], t.Context()
	ints, counts := make([]int32, 9), []int{2, 3, 4}
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"gather_v", nexar.GatherV(ctx, c, ints, make([]int32, 2), []int{2, 3}, 0), nexar.ErrInvalidLength, "2 counts for 3 ranks"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, 3, 4, 0}), nexar.ErrInvalidLength, "4 counts for 3 ranks"},
		{"scatter_v", nexar.ScatterV(ctx, c, ints, ints, nil, 0), nexar.ErrInvalidLength, "0 counts for 3 ranks"},
		{"reduce_scatter_v", nexar.ReduceScatterV(ctx, c, ints, ints, nil, nexar.Sum), nexar.ErrInvalidLength, "0 counts for 3 ranks"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints, make([]int32, 9), nil, counts), nexar.ErrInvalidLength, "0 dstCounts for 3 ranks"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints, make([]int32, 9), counts, []int{9}), nexar.ErrInvalidLength, "1 srcCounts for 3 ranks"},

		{"gather_v", nexar.GatherV(ctx, c, ints, make([]int32, 2), []int{2, -1, 8}, 0), nexar.ErrInvalidLength, "counts[1] is -1"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints, ints, counts, []int{-4, 9, 4}), nexar.ErrInvalidLength, "srcCounts[0] is -4"},
		{"scatter_v", nexar.ScatterV(ctx, c, ints[:2], ints, []int{2, 7, math.MinInt}, 0), nexar.ErrInvalidLength, fmt.Sprint("counts[2] is ", math.MinInt)},
		// Their sum overflows to 9.
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, math.MaxInt, math.MaxInt}), nexar.ErrInvalidLength, "counts[1] is"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, make([]int32, 2), []int{2, 1 << 38, 1 << 38}), nexar.ErrInvalidLength, "counts[2] is"},
		{"gather_v", nexar.GatherV(ctx, c, make([][1 << 20]byte, 1), nil, []int{0, 1, 1 << 20}, 0), nexar.ErrInvalidLength, "counts[2] is 1048576"},

		{"gather_v", nexar.GatherV(ctx, c, ints, make([]int32, 2), counts, 3), nexar.ErrInvalidRank, "root 3 of 3 ranks"},
		{"scatter_v", nexar.ScatterV(ctx, c, make([]int32, 2), ints, counts, -1), nexar.ErrInvalidRank, "root -1 of 3 ranks"},
		{"gather_v", nexar.GatherV(ctx, c, ints, make([]int32, 3), counts, 0), nexar.ErrInvalidLength, "src has 3 elements, not 2"},
		{"gather_v", nexar.GatherV(ctx, c, ints[1:], make([]int32, 2), counts, 0), nexar.ErrInvalidLength, "dst has 8 elements, not 9"},
		{"all_gather_v", nexar.AllGatherV(ctx, comms[2], ints, make([]int32, 2), counts), nexar.ErrInvalidLength, "src has 2 elements, not 4"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, nil, make([]int32, 2), counts), nexar.ErrInvalidLength, "dst has 0 elements, not 9"},
		{"scatter_v", nexar.ScatterV(ctx, comms[1], make([]int32, 2), nil, counts, 0), nexar.ErrInvalidLength, "dst has 2 elements, not 3"},
		{"scatter_v", nexar.ScatterV(ctx, c, make([]int32, 2), ints[:3], counts, 0), nexar.ErrInvalidLength, "src has 3 elements, not 9"},
		{"reduce_scatter_v", nexar.ReduceScatterV(ctx, c, nil, ints, counts, nexar.Sum), nexar.ErrInvalidLength, "dst has 0 elements, not 2"},
		{"reduce_scatter_v", nexar.ReduceScatterV(ctx, c, make([]int32, 2), ints[:8], counts, nexar.Sum), nexar.ErrInvalidLength, "src has 8 elements, not 9"},
		{"reduce_scatter_v", nexar.ReduceScatterV(ctx, c, make([]float32, 2), make([]float32, 9), counts, nexar.BitOr), nexar.ErrInvalidOp, "bit_or is not defined for float32"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints[:8], make([]int32, 9), counts, counts), nexar.ErrInvalidLength, "dst has 8 elements, not 9"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints, make([]int32, 8), counts, counts), nexar.ErrInvalidLength, "src has 8 elements, not 9"},

		{"gather_v", nexar.GatherV(ctx, c, ints, ints[1:3], counts, 0), nexar.ErrOverlap, "src shares memory with dst, but is not block 0 of it"},
		{"gather_v", nexar.GatherV(ctx, comms[1], ints, ints[1:4], counts, 1), nexar.ErrOverlap, "but is not block 1 of it"},
		{"all_gather_v", nexar.AllGatherV(ctx, comms[2], ints, ints[4:8], counts), nexar.ErrOverlap, "but is not block 2 of it"},
		{"scatter_v", nexar.ScatterV(ctx, comms[1], ints[:3], ints, counts, 1), nexar.ErrOverlap, "dst shares memory with src, but is not block 1 of it"},
		{"reduce_scatter_v", nexar.ReduceScatterV(ctx, comms[1], ints[3:6], ints, counts, nexar.Sum), nexar.ErrOverlap, "but is not block 1 of it"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints, ints, counts, counts), nexar.ErrOverlap, "dst and src share memory"},
		{"all_to_all_v", nexar.AllToAllV(ctx, c, ints[:5], ints[4:], []int{5, 0, 0}, []int{5, 0, 0}), nexar.ErrOverlap, "dst and src share memory"},

		{"gather_v", nexar.StartGatherV(ctx, c, ints, ints[1:3], counts, 0).Wait(), nexar.ErrOverlap, "block 0"},
		{"all_gather_v", nexar.StartAllGatherV(ctx, c, ints, ints[:2], nil).Wait(), nexar.ErrInvalidLength, "0 counts"},
		{"scatter_v", nexar.StartScatterV(ctx, c, ints, ints, counts, 0).Wait(), nexar.ErrInvalidLength, "dst has 9 elements, not 2"},
		{"reduce_scatter_v", nexar.StartReduceScatterV(ctx, c, ints[:2], ints, counts, 99).Wait(), nexar.ErrInvalidOp, ""},
		{"all_to_all_v", nexar.StartAllToAllV(ctx, c, ints, ints, counts, counts).Wait(), nexar.ErrOverlap, "dst and src share memory"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: "+test.name+": ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// inAll returns the text of the lengths of blocks in errors.
func inAll(counts []int) string { return fmt.Sprintf("%d × uint16", sum(counts)) }

func gatherVOf(root int, counts ...int) call {
	return call{fmt.Sprintf("gather_v #2 (%s, root %d)", inAll(counts), root), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.GatherV(ctx, c, make([]uint16, sum(counts)), make([]uint16, counts[c.Rank()]), counts[:c.Size()], root)
	}}
}

func allGatherVOf(counts ...int) call {
	return call{fmt.Sprintf("all_gather_v #2 (%s)", inAll(counts)), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllGatherV(ctx, c, make([]uint16, sum(counts)), make([]uint16, counts[c.Rank()]), counts)
	}}
}

func scatterVOf(root int, counts ...int) call {
	return call{fmt.Sprintf("scatter_v #2 (%s, root %d)", inAll(counts), root), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.ScatterV(ctx, c, make([]uint16, counts[c.Rank()]), make([]uint16, sum(counts)), counts, root)
	}}
}

func reduceScatterVOf(op nexar.Op, counts ...int) call {
	return call{fmt.Sprintf("reduce_scatter_v #2 (%s, %v)", inAll(counts), op), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.ReduceScatterV(ctx, c, make([]uint16, counts[c.Rank()]), make([]uint16, sum(counts)), counts, op)
	}}
}

var allToAllVCall = call{"all_to_all_v #2", func(ctx context.Context, c *nexar.Comm) error {
	ones := slices.Repeat([]int{1}, c.Size())
	return nexar.AllToAllV(ctx, c, make([]uint16, c.Size()), make([]uint16, c.Size()), ones, ones)
}}

// TestMismatchOfCounts: ranks with different counts, or with a call for blocks of
// different lengths and another call, all get an error that says so.
func TestMismatchOfCounts(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many calls")
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
		{allGatherVOf(1, 2, 3), reduceScatterVOf(nexar.Sum, 1, 2, 3)},
		{reduceScatterVOf(nexar.Sum, 1, 2, 3), reduceScatterVOf(nexar.Max, 1, 2, 3)},
		{reduceScatterVOf(nexar.Sum, 1, 2, 3), reduceScatterVOf(nexar.Sum, 2, 1, 3)},
		{allToAllVCall, barrierCall},
		{allToAllVCall, allToAllOf(1)},
		// The exchange of counts within it has the same length.
		{allToAllVCall, allGatherOf(6)},
	} {
		for odd := range 3 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", calls[0].text, odd, calls[1].text), func(t *testing.T) {
				t.Parallel()
				m := worldtest.Mem()
				switch (i + odd) % 5 {
				case 0:
					m = worldtest.MemLinks()
				case 1:
					m = worldtest.QUIC()
				}
				mismatch(t, m, 3, odd, calls[0], calls[1])
			})
		}
	}
}

// TestMismatchOfElementsToAll: an all-to-all with equal counts and different element
// types is a mismatch.
func TestMismatchOfElementsToAll(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		counts := []int{3, 3}
		err := nexar.AllToAllV(ctx, c, make([]float32, 6), make([]float32, 6), counts, counts)
		if err == nil && rank == 0 {
			err = nexar.AllToAllV(ctx, c, make([]float32, 6), make([]float32, 6), counts, counts)
		} else if err == nil {
			err = nexar.AllToAllV(ctx, c, make([]int32, 6), make([]int32, 6), counts, counts)
		}
		for err == nil {
			err = c.Barrier(ctx)
		}
		if _, ok := errors.AsType[*nexar.MismatchError](err); !ok || !strings.Contains(err.Error(), "rank 1 called all_to_all_v #4 (12 × int32") {
			return fmt.Errorf("%w, want a MismatchError with what rank 1 called", err)
		}
		return nil
	})
}

// TestInconsistentCounts: if a rank sends more or fewer elements than their receiver expects, all
// ranks get the same error, and the communicator goes on.
func TestInconsistentCounts(t *testing.T) {
	for _, test := range []struct {
		ranks int
		// wrong has, by pair of ranks, the number of elements that the first rank expects
		// from the second, less the number that the second sends.
		wrong map[[2]int]int
		want  nexar.CountsError
	}{
		{1, map[[2]int]int{{0, 0}: 1}, nexar.CountsError{From: 0, To: 0, Sent: 7, Expected: 8}},
		{2, map[[2]int]int{{1, 0}: -1}, nexar.CountsError{From: 0, To: 1, Sent: 7, Expected: 6}},
		{3, map[[2]int]int{{2, 2}: -7}, nexar.CountsError{From: 2, To: 2, Sent: 7, Expected: 0}},
		{5, map[[2]int]int{{4, 3}: 2, {1, 4}: 100_000, {3, 0}: 1}, nexar.CountsError{From: 4, To: 1, Sent: 7, Expected: 100_007}},
	} {
		for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, test.ranks), func(t *testing.T) {
				comms := m.Cluster(t, test.ranks, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				for _, begin := range []bool{false, true} {
					worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
						in, out := slices.Repeat([]int{7}, c.Size()), slices.Repeat([]int{7}, c.Size())
						for pair, more := range test.wrong {
							if pair[0] == rank {
								in[pair[1]] += more
							}
						}
						dst := slices.Repeat([]int16{-1}, sum(in))
						var err error
						if begin {
							err = nexar.StartAllToAllV(ctx, c, dst, make([]int16, sum(out)), in, out).Wait()
						} else {
							err = nexar.AllToAllV(ctx, c, dst, make([]int16, sum(out)), in, out)
						}
						e, ok := errors.AsType[*nexar.CountsError](err)
						want := fmt.Sprintf("nexar: all_to_all_v: invalid length: rank %d sends 7 elements to rank %d, which expects %d", test.want.From, test.want.To, test.want.Expected)
						if !ok || *e != test.want || !errors.Is(err, nexar.ErrInvalidLength) || err.Error() != want {
							return fmt.Errorf("got %w, want %s", err, want)
						}
						if slices.Contains(dst, 0) {
							return errors.New("dst was written")
						}
						return nil
					})
					worldtest.CheckWorks(t, comms)
				}
			})
		}
	}
}

// TestUnevenInFlight: many operations with different counts run at once, and can be
// waited for in any order.
func TestUnevenInFlight(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			const ranks, rounds = 4, 12
			comms := m.Cluster(t, ranks, nexar.Config{Deterministic: true})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				var begun []*nexar.Handle
				var results [][]int64
				var counts []int
				for round := range rounds {
					counts = []int{round, 0, 20_000 * (round % 2), 3}
					own := slices.Repeat([]int64{int64(100*round + rank)}, counts[rank])
					gathered, all := make([]int64, sum(counts)), make([]int64, sum(counts))
					back := make([]int64, counts[rank])
					begun = append(begun, nexar.StartAllGatherV(t.Context(), c, gathered, own, counts))
					begun = append(begun, nexar.StartGatherV(t.Context(), c, all, own, counts, round%ranks))
					begun = append(begun, nexar.StartReduceScatterV(t.Context(), c, back, make([]int64, sum(counts)), counts, nexar.Sum))
					results = append(results, gathered)
					if rank == round%ranks {
						results = append(results, all)
					} else {
						results = append(results, gathered)
					}
					clear(counts)
				}
				slices.Reverse(begun)
				if err := nexar.WaitAll(begun...); err != nil {
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
