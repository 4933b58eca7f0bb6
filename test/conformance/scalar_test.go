package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// onSizes calls f on every rank of worlds of 1 to 5 ranks.
func onSizes(t *testing.T, f func(c *nexar.Comm) error) {
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			worldtest.OnAll(t, worldtest.Mem().Cluster(t, n, nexar.Config{}), func(_ int, c *nexar.Comm) error { return f(c) })
		})
	}
}

// TestScalars: collectives of one element return the same as those of vectors.
func TestScalars(t *testing.T) {
	type report struct {
		Rank int32
		Loss float64
	}
	onSizes(t, func(c *nexar.Comm) error {
		ctx, n, last := t.Context(), c.Size(), c.Size()-1
		sum, err := nexar.AllReduceOne(ctx, c, c.Rank()+1, nexar.Sum)
		if err != nil || sum != n*(n+1)/2 {
			return fmt.Errorf("sum %d, %v", sum, err)
		}
		most, err := nexar.AllReduceOne(ctx, c, float32(c.Rank()), nexar.Max)
		if err != nil || most != float32(last) {
			return fmt.Errorf("maximum %v, %v", most, err)
		}
		own := report{Rank: int32(c.Rank()), Loss: 1 / float64(c.Rank()+1)}
		one, err := nexar.BroadcastOne(ctx, c, own, last)
		if err != nil || one != (report{int32(last), 1 / float64(n)}) {
			return fmt.Errorf("broadcast %v, %v", one, err)
		}
		all, err := nexar.AllGatherOne(ctx, c, own)
		if err != nil || len(all) != n || all[c.Rank()] != own || all[last] != one {
			return fmt.Errorf("all-gather %v, %v", all, err)
		}
		if x, err := nexar.AllReduceOne(ctx, c, 1.5, nexar.BitAnd); !errors.Is(err, nexar.ErrInvalidOp) || x != 0 {
			return fmt.Errorf("bits of a float: %v, %v", x, err)
		}
		if x, err := nexar.BroadcastOne(ctx, c, 7, n); !errors.Is(err, nexar.ErrInvalidRank) || x != 0 {
			return fmt.Errorf("root %d: %v, %v", n, x, err)
		}
		if all, err := nexar.AllGatherOne(ctx, c, "text"); !errors.Is(err, nexar.ErrInvalidType) || all != nil {
			return fmt.Errorf("strings: %v, %v", all, err)
		}
		return nil
	})
}

// weight is a named type of floats.
type weight float64

// TestMean: a weighted mean equals the mean over all samples, for every type of floats, and the
// data of ranks without samples is ignored.
func TestMean(t *testing.T) {
	onSizes(t, func(c *nexar.Comm) error {
		// Rank r has r samples; the sample of rank r is r, and rank 0 of more has garbage.
		own, total, want := float64(c.Rank()), 0.0, 0.0
		value := float64(c.Rank())
		for r := range c.Size() {
			total += float64(r)
			want += float64(r * r)
		}
		switch {
		case c.Size() == 1:
			own, value, want = 5, 3, 3
		case c.Rank() == 0:
			value = math.NaN()
			fallthrough
		default:
			want /= total
		}
		return errors.Join(
			mean(t.Context(), c, float32(value), own, want, 1e-6, func(x float32) float64 { return float64(x) }),
			mean(t.Context(), c, weight(value), own, want, 1e-14, func(x weight) float64 { return float64(x) }),
			mean(t.Context(), c, nexar.ToFloat16(float32(value)), own, want, 1e-2, func(x nexar.Float16) float64 { return float64(x.Float32()) }),
			mean(t.Context(), c, nexar.ToFloat8E4M3(float32(value)), own, want, 0.5, func(x nexar.Float8E4M3) float64 { return float64(x.Float32()) }),
			mean(t.Context(), c, nexar.ToFloat8E5M2(float32(value)), own, want, 1, func(x nexar.Float8E5M2) float64 { return float64(x.Float32()) }),
			mean(t.Context(), c, nexar.ToBFloat16(float32(value)), own, want, 1e-1, func(x nexar.BFloat16) float64 { return float64(x.Float32()) }),
		)
	})
}

func mean[T nexar.Float](ctx context.Context, c *nexar.Comm, x T, weight, want, tolerance float64, value func(T) float64) error {
	data := []T{x, x, x}
	if err := nexar.AllReduceMean(ctx, c, data, weight); err != nil {
		return err
	}
	bits, err := nexar.AllGatherOne(ctx, c, data[2])
	if err != nil {
		return err
	}
	for r, b := range bits {
		if b != data[0] || math.Abs(value(b)-want) > tolerance*math.Max(1, want) {
			return fmt.Errorf("%T: rank %d has %v, want %v", x, r, value(b), want)
		}
	}
	return nil
}

// TestMeanKeepsTheRange: no intermediate result of 16-bit floats overflows.
func TestMeanKeepsTheRange(t *testing.T) {
	onSizes(t, func(c *nexar.Comm) error {
		data := []nexar.Float16{nexar.ToFloat16(60000)}
		if err := nexar.AllReduceMean(t.Context(), c, data, 1024); err != nil || math.Abs(float64(data[0].Float32())-60000) > 100 {
			return fmt.Errorf("got %v, %v, want about 60000", data, err)
		}
		return nil
	})
}

// TestMeanOfInvalidWeights: if the weight of one rank is invalid, all ranks get an error, data is
// unchanged, and the communicator goes on.
func TestMeanOfInvalidWeights(t *testing.T) {
	onSizes(t, func(c *nexar.Comm) error {
		for _, bad := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 0, math.MaxFloat64} {
			own, data := 1.0, []float64{float64(c.Rank())}
			if c.Rank() == c.Size()-1 || bad == 0 || bad == math.MaxFloat64 {
				own = bad
			}
			if bad == math.MaxFloat64 && c.Size() == 1 {
				continue // The sum is finite.
			}
			err := nexar.AllReduceMean(t.Context(), c, data, own)
			text := fmt.Sprintf("that of rank %d is %v;", c.Rank(), own)
			if !errors.Is(err, nexar.ErrInvalidWeight) || !worldtest.HasText(err, text) || data[0] != float64(c.Rank()) {
				return fmt.Errorf("weight %v: got error %v, data %v", bad, err, data)
			}
		}
		return c.Barrier(t.Context())
	})
}

// TestMeanMismatch: an AllReduceMean does not match an AllReduce.
func TestMeanMismatch(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		var err error
		if rank == 0 {
			err = nexar.AllReduceMean(t.Context(), c, []float64{1}, 1)
		} else {
			err = nexar.AllReduce(t.Context(), c, []float64{1}, nexar.Sum)
		}
		if m, ok := errors.AsType[*nexar.MismatchError](err); !ok || m.Call.Op == m.PeerCall.Op {
			return fmt.Errorf("got error %v, want a MismatchError with two operations", err)
		}
		return nil
	})
}

// TestShares: shares add up, differ by at most one, and fit the collectives with uneven blocks.
func TestShares(t *testing.T) {
	onSizes(t, func(c *nexar.Comm) error {
		n := c.Size()
		for total := range 2*n + 2 {
			counts := nexar.Shares(total, n)
			sum := 0
			for _, k := range counts {
				sum += k
			}
			if len(counts) != n || sum != total || counts[0]-counts[n-1] > 1 || !slices.IsSortedFunc(counts, func(a, b int) int { return b - a }) {
				return fmt.Errorf("shares of %d: %v", total, counts)
			}
			src, dst := slices.Repeat([]int{c.Rank()}, counts[c.Rank()]), make([]int, total)
			if err := nexar.AllGatherV(t.Context(), c, dst, src, counts); err != nil {
				return err
			}
			own := make([]int, counts[c.Rank()])
			if err := nexar.ReduceScatterV(t.Context(), c, own, dst, counts, nexar.Sum); err != nil {
				return err
			}
			for i, x := range own {
				if x != n*c.Rank() {
					return fmt.Errorf("of %d: element %d is %d", total, i, x)
				}
			}
		}
		return nil
	})
	for _, bad := range [][2]int{{-1, 2}, {3, 0}} {
		func() {
			defer func() {
				want := fmt.Sprintf("nexar: Shares(%d, %d): n must not be negative, and size must be at least 1", bad[0], bad[1])
				if got := recover(); got != want {
					t.Errorf("panic %v, want %s", got, want)
				}
			}()
			nexar.Shares(bad[0], bad[1])
		}()
	}
}

// TestNoRank: messages to and from NoRank end at once and change nothing, in every form.
func TestNoRank(t *testing.T) {
	want := nexar.Status{Source: nexar.NoRank, Tag: nexar.AnyTag}
	onSizes(t, func(c *nexar.Comm) error {
		ctx := t.Context()
		data := []int32{7}
		if err := errors.Join(
			nexar.Send(ctx, c, data, nexar.NoRank, 3),
			nexar.SendVec(ctx, c, [][]int32{data, nil}, nexar.NoRank, 3),
			nexar.StartSend(ctx, c, data, nexar.NoRank, 3).Wait(),
		); err != nil {
			return err
		}
		started := nexar.StartRecv(ctx, c, data, nexar.NoRank, nexar.AnyTag)
		exchange := nexar.StartExchange(ctx, c, make([]int32, 1), []int32{1}, nexar.NoRank, nexar.NoRank, 3)
		if err := nexar.WaitAll(started, exchange); err != nil {
			return err
		}
		got, errs := []nexar.Status{started.Status(), exchange.Status()}, []error(nil)
		add := func(s nexar.Status, err error) { got, errs = append(got, s), append(errs, err) }
		add(nexar.Recv(ctx, c, data, nexar.NoRank, 3))
		add(nexar.RecvVec(ctx, c, [][]int32{data}, nexar.NoRank, 3))
		add(nexar.Exchange(ctx, c, data, []int32{1}, nexar.NoRank, nexar.NoRank, 3))
		add(nexar.Probe[int32](ctx, c, nexar.NoRank, 3))
		m, err := c.MatchedProbe(ctx, nexar.NoRank, 3)
		if err != nil || m.Source() != nexar.NoRank || m.Tag() != nexar.AnyTag || m.Bytes() != 0 {
			return fmt.Errorf("matched probe: %v, %v", m, err)
		}
		add(nexar.RecvMatched(ctx, m, data))
		all, s, err := nexar.RecvAlloc[int32](ctx, c, nexar.NoRank, 3)
		add(s, err)
		for i, s := range got {
			if s != want {
				return fmt.Errorf("receive %d: got %+v, want %+v", i, s, want)
			}
		}
		if err := errors.Join(errs...); err != nil || len(all) != 0 || data[0] != 7 {
			return fmt.Errorf("got %v, %v, %v", all, data, err)
		}
		if err := nexar.Send(ctx, c, data, nexar.NoRank, -1); !errors.Is(err, nexar.ErrInvalidTag) {
			return fmt.Errorf("tag -1: got error %v", err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := nexar.Send(ended, c, data, nexar.NoRank, 0); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("cancelled: got error %v", err)
		}
		if err := nexar.Broadcast(ctx, c, data, nexar.NoRank); !errors.Is(err, nexar.ErrInvalidRank) {
			return fmt.Errorf("root NoRank: got error %v", err)
		}
		// A line of ranks, where the ends have one neighbor.
		prev, next := c.Rank()-1, c.Rank()+1
		if prev < 0 {
			prev = nexar.NoRank
		}
		if next == c.Size() {
			next = nexar.NoRank
		}
		from := []int{-7}
		if _, err := nexar.Exchange(ctx, c, from, []int{c.Rank()}, next, prev, 0); err != nil {
			return err
		}
		if wanted := map[bool]int{true: -7, false: prev}[c.Rank() == 0]; from[0] != wanted {
			return fmt.Errorf("from the left: %d, want %d", from[0], wanted)
		}
		c.Close()
		if _, err := nexar.Recv(ctx, c, data, nexar.NoRank, 0); !errors.Is(err, nexar.ErrClosed) {
			return fmt.Errorf("closed: got error %v", err)
		}
		return nil
	})
}

// TestWaitAny: WaitAny returns each operation once, in the order in which they end, and skips nil
// handles.
func TestWaitAny(t *testing.T) {
	onSizes(t, func(c *nexar.Comm) error {
		ctx := t.Context()
		// Messages to this rank are received in the reverse order of the receives.
		const n = 4
		handles, boxes := make([]*nexar.Handle, n), make([][]int, n)
		for i := range handles {
			boxes[i] = make([]int, 1)
			handles[i] = nexar.StartRecv(ctx, c, boxes[i], c.Rank(), nexar.Tag(i))
		}
		var order []int
		for k := range n {
			last := n - 1 - k
			if err := nexar.Send(ctx, c, []int{last}, c.Rank(), nexar.Tag(last)); err != nil {
				return err
			}
			i, err := nexar.WaitAny(ctx, handles...)
			if err != nil {
				return err
			}
			order, handles[i] = append(order, i), nil
		}
		if want := []int{3, 2, 1, 0}; !slices.Equal(order, want) || !reflect.DeepEqual(boxes, [][]int{{0}, {1}, {2}, {3}}) {
			return fmt.Errorf("got %v in the order %v", boxes, order)
		}
		if i, err := nexar.WaitAny(ctx, handles...); i != -1 || err != nil {
			return fmt.Errorf("none left: %d, %v", i, err)
		}
		if i, err := nexar.WaitAny(ctx); i != -1 || err != nil {
			return fmt.Errorf("none: %d, %v", i, err)
		}
		// WaitAny returns the error of an operation. It returns when its context ends.
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		waiting := nexar.StartRecv(within, c, make([]int, 1), c.Rank(), 9)
		gone, end := context.WithCancel(ctx)
		end()
		if i, err := nexar.WaitAny(gone, nil, waiting); i != -1 || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("context: %d, %v", i, err)
		}
		cancel()
		if i, err := nexar.WaitAny(ctx, nil, waiting); i != 1 || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("failed: %d, %v", i, err)
		}
		if i, err := nexar.WaitAny(ctx, new(nexar.Handle)); i != 0 || err == nil {
			return fmt.Errorf("zero handle: %d, %v", i, err)
		}
		return nil
	})
}
