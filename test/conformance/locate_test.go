package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestLocate finds the smallest and the largest elements and their ranks, for all types
// by all algorithms and for lengths up to several pieces. The vectors have few values, so
// that several ranks have equal ones, and all special values.
func TestLocate(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many element types")
	for _, test := range []struct {
		worldtest.Medium
		ranks []int
		most  int
	}{
		{worldtest.Mem(), []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, 20_011},
		{worldtest.MemLinks(), []int{2, 3, 5}, 20_011},
		{worldtest.Sim(), []int{3}, 10_007},
		{worldtest.QUIC(), []int{2, 5}, 20_011},
		{worldtest.SHM(), []int{3}, 20_011},
		{worldtest.SHMLinks(), []int{3}, 10_007},
		{worldtest.TLS(), []int{3}, 10_007},
		{worldtest.TCP(), []int{3}, 10_007},
		{worldtest.Mixed(), []int{4}, 10_007},
	} {
		for _, n := range test.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, n), func(t *testing.T) {
				test.Require(t)
				comms := test.Cluster(t, n, nexar.Config{})
				drawn := uint64(0)
				for i, w := range choicesOf(plan.AllReduce, n) {
					for _, count := range []int{0, 1, 19, 1009, test.most} {
						// All types with the choice of the tuner, a sample with pins.
						sample := uint64(1)
						if i > 0 {
							sample = 12
						}
						if count == test.most {
							sample = 30
						}
						sample = worldtest.Thin(sample)
						for _, l := range locators() {
							if drawn++; worldtest.Mix(drawn)%sample != 0 {
								continue
							}
							if err := l.run(comms, w, count, drawn%2 == 0); err != nil {
								t.Fatalf("%d × %v, %s: %v", count, l.typ, w.name, err)
							}
						}
					}
				}
			})
		}
	}
}

// TestLocateDeterministic is TestLocate with a fixed order of operands.
func TestLocateDeterministic(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 5, nexar.Config{Deterministic: true})
	for _, l := range locators() {
		if err := l.run(comms, pinned{}, 1009, false); err != nil {
			t.Errorf("%v: %v", l.typ, err)
		}
	}
}

// A locator tests MinLoc and MaxLoc of a type.
type locator struct {
	*kind
	on func(ctx context.Context, c *nexar.Comm, l locator, count int, begin bool) (result []byte, err error)
}

func locators() (list []locator) {
	on := map[kernel.Type]func(ctx context.Context, c *nexar.Comm, l locator, count int, begin bool) (result []byte, err error){
		kernel.Int8: locate[int8], kernel.Int16: locate[int16], kernel.Int32: locate[int32], kernel.Int64: locate[int64],
		kernel.Uint8: locate[uint8], kernel.Uint16: locate[uint16], kernel.Uint32: locate[uint32], kernel.Uint64: locate[uint64],
		kernel.Float32: locate[float32], kernel.Float64: locate[float64],
		kernel.Float16: locate[nexar.Float16], kernel.BFloat16: locate[nexar.BFloat16],
		kernel.Float8E4M3: locate[nexar.Float8E4M3], kernel.Float8E5M2: locate[nexar.Float8E5M2],
	}
	for _, k := range kinds() {
		list = append(list, locator{k, on[k.typ]})
	}
	return list
}

func (l locator) run(comms []*nexar.Comm, p pinned, count int, begin bool) error {
	results := make([][]byte, len(comms))
	err := worldtest.ForEach(len(comms), func(rank int) error {
		undo, err := p.take(comms[rank])
		if err != nil {
			return err
		}
		defer undo()
		results[rank], err = l.on(context.Background(), comms[rank], l, count, begin)
		if err != nil {
			comms[rank].Close() // so that no rank waits for it
		}
		return err
	})
	for rank, r := range results {
		if err == nil && !bytes.Equal(r, results[0]) {
			err = fmt.Errorf("ranks 0 and %d have different results", rank)
		}
	}
	return err
}

// marks are the values of the vectors, as bits: special values, with two different NaNs
// among them, and a few ordinary ones.
func (l locator) marks() []uint64 {
	if l.isFloat() {
		nan := l.fromFloat(math.NaN())
		marks := []uint64{nan, nan | 1}
		for _, f := range []float64{math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 1.5, 3e-8} {
			marks = append(marks, l.fromFloat(f))
		}
		return marks
	}
	top := uint64(1) << (l.bits() - 1)
	return []uint64{0, 1, 2, top - 1, top, top + 1, 2*top - 1, 2*top - 2}
}

// mark returns the element of a rank at position i. Every other position has no NaN and
// no infinity.
//
//go:norace
func (l locator) mark(marks []uint64, rank, i int) uint64 {
	if l.isFloat() && i%2 == 1 {
		marks = marks[4:]
	}
	return marks[worldtest.Mix(uint64(i)<<8+uint64(rank))%uint64(len(marks))]
}

// wins reports whether a comes before b. It is independent of the tested code.
//
//go:norace
func (l locator) wins(a, b uint64, op nexar.Op) bool {
	if !l.isFloat() {
		x, y := l.extended(a), l.extended(b)
		if !l.signed {
			return x != y && (uint64(x) < uint64(y)) == (op == nexar.Min)
		}
		return x != y && (x < y) == (op == nexar.Min)
	}
	x, y := l.toFloat(a), l.toFloat(b)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return math.IsNaN(x) && !math.IsNaN(y)
	case x == y:
		return math.Signbit(x) != math.Signbit(y) && math.Signbit(x) == (op == nexar.Min)
	}
	return (x < y) == (op == nexar.Min)
}

// locate has the expected results of a MinLoc and a MaxLoc.
func locate[T nexar.Real](ctx context.Context, c *nexar.Comm, l locator, count int, begin bool) (result []byte, err error) {
	marks := l.marks()
	for _, op := range []nexar.Op{nexar.Min, nexar.Max} {
		data, ranks := newGuarded[T](count), newGuarded[int32](count)
		for i := range data.v {
			data.v[i] = fromBits[T](l.mark(marks, c.Rank(), i))
			ranks.v[i] = -7
		}
		call, start := nexar.MinLoc[T], nexar.StartMinLoc[T]
		if op == nexar.Max {
			call, start = nexar.MaxLoc[T], nexar.StartMaxLoc[T]
		}
		if begin {
			err = start(ctx, c, data.v, ranks.v).Wait()
		} else {
			err = call(ctx, c, data.v, ranks.v)
		}
		if err := errors.Join(err, data.check("data"), ranks.check("ranks")); err != nil {
			return nil, fmt.Errorf("%v: %w", op, err)
		}
		result = slices.Concat(result, bytesOf(data.v), bytesOf(ranks.v))
		for i := 0; i < count && c.Rank() == 0; i++ {
			want, rank := l.winner(marks, c.Size(), i, op)
			if got := toBits(data.v[i]); got != want || ranks.v[i] != int32(rank) {
				return nil, fmt.Errorf("%v: element %d is %#x of rank %d, want %#x of rank %d", op, i, got, ranks.v[i], want, rank)
			}
		}
	}
	return result, nil
}

// winner returns the element at position i that comes before those of all other ranks, of
// the lowest rank among equals.
//
//go:norace
func (l locator) winner(marks []uint64, n, i int, op nexar.Op) (bits uint64, rank int) {
	bits = l.mark(marks, 0, i)
	for r := 1; r < n; r++ {
		if m := l.mark(marks, r, i); l.wins(m, bits, op) {
			bits, rank = m, r
		}
	}
	return bits, rank
}

func TestInvalidLocate(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c, ctx := comms[0], t.Context()
	ints, ranks := make([]int32, 6), make([]int32, 6)
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"min_loc", nexar.MinLoc(ctx, c, ints, ranks[:5]), nexar.ErrInvalidLength, "ranks has 5 elements, not 6"},
		{"max_loc", nexar.MaxLoc(ctx, c, ints[:2], ranks), nexar.ErrInvalidLength, "ranks has 6 elements, not 2"},
		{"max_loc", nexar.MaxLoc(ctx, c, make([]nexar.Float16, 1), nil), nexar.ErrInvalidLength, "ranks has 0 elements, not 1"},
		{"min_loc", nexar.MinLoc(ctx, c, ints, ints), nexar.ErrOverlap, "data and ranks share memory"},
		{"max_loc", nexar.MaxLoc(ctx, c, ints[:3], ints[2:5]), nexar.ErrOverlap, "data and ranks share memory"},
		{"min_loc", nexar.StartMinLoc(ctx, c, ints, ints).Wait(), nexar.ErrOverlap, "data and ranks share memory"},
		{"max_loc", nexar.StartMaxLoc(ctx, c, ints, nil).Wait(), nexar.ErrInvalidLength, "ranks has 0 elements, not 6"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: "+test.name+": ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestLocateInFlight: the operation owns the vectors until it has ended.
func TestLocateInFlight(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	data, ranks, other := []float32{1, 2, 3}, make([]int32, 3), make([]int32, 3)
	for range 2 {
		h := nexar.StartMinLoc(ctx, comms[0], data, ranks)
		for name, err := range map[string]error{
			"another of the same vector": nexar.StartMaxLoc(ctx, comms[0], data, other).Wait(),
			"another of the same ranks":  nexar.StartMaxLoc(ctx, comms[0], []float32{1, 2, 3}, ranks).Wait(),
			"a reduction of the ranks":   nexar.StartAllReduce(ctx, comms[0], ranks, nexar.Sum).Wait(),
			"a broadcast of the vector":  nexar.StartBroadcast(ctx, comms[0], data[2:], 0).Wait(),
		} {
			if !errors.Is(err, nexar.ErrOverlap) || !strings.Contains(err.Error(), "min_loc, which is in progress") {
				t.Errorf("%s: %v, want ErrOverlap with min_loc", name, err)
			}
		}
		if err := nexar.MinLoc(ctx, comms[1], []float32{0, 5, 3}, make([]int32, 3)); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(); err != nil || !slices.Equal(data, []float32{0, 2, 3}) || !slices.Equal(ranks, []int32{1, 0, 0}) {
			t.Fatalf("got %v of %v, error %v", data, ranks, err)
		}
		copy(data, []float32{1, 2, 3})
	}
	worldtest.CheckWorks(t, comms)
}

func minLocOf[T nexar.Real](count int) call {
	return call{fmt.Sprintf("min_loc #2 (%d × %v)", count, typeOf[T]()), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.MinLoc(ctx, c, make([]T, count), make([]int32, count))
	}}
}

// TestMismatchOfLocate: pairs of different types are a mismatch, even of equal lengths,
// as are a pair and a reduction.
func TestMismatchOfLocate(t *testing.T) {
	maxLoc := call{"max_loc #2 (10 × float32)", func(ctx context.Context, c *nexar.Comm) error {
		return nexar.MaxLoc(ctx, c, make([]float32, 10), make([]int32, 10))
	}}
	for _, calls := range [][2]call{
		{minLocOf[float32](10), maxLoc},
		{minLocOf[float32](10), minLocOf[float32](11)},
		{minLocOf[float32](10), minLocOf[int32](10)},
		{minLocOf[float32](10), minLocOf[float64](10)},
		{minLocOf[float32](100_000), minLocOf[float64](100_000)},
		{minLocOf[float32](10), allReduceOf[float32](10, nexar.Min)},
	} {
		for odd := range 2 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", calls[0].text, odd, calls[1].text), func(t *testing.T) {
				t.Parallel()
				mismatch(t, worldtest.MemLinks(), 3, odd, calls[0], calls[1])
			})
		}
	}
}
