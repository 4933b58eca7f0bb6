package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A call is one side of a mismatch.
type call struct {
	text string // its text in errors, before and after its sequence number
	f    func(ctx context.Context, c *nexar.Comm) error
}

// differs is the end of the text of a mismatch between calls with the same text.
func (c call) differs() string {
	switch {
	case strings.HasPrefix(c.text, "all_reduce_buckets"):
		return ", but the number or the lengths of their vectors differ"
	case strings.HasPrefix(c.text, "broadcast_values"):
		return ", but the number or the lengths of their values differ"
	}
	return ", but their counts differ"
}

func broadcastOf(count, root int) call {
	return call{
		fmt.Sprintf("broadcast #2 (%d × float32, root %d)", count, root),
		func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Broadcast(ctx, c, make([]float32, count), root)
		},
	}
}

func allReduceOf[T nexar.Number](count int, op nexar.Op) call {
	return call{
		fmt.Sprintf("all_reduce #2 (%d × %v, %v)", count, typeOf[T](), op),
		func(ctx context.Context, c *nexar.Comm) error { return nexar.AllReduce(ctx, c, make([]T, count), op) },
	}
}

var (
	barrierCall = call{"barrier #2", func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) }}
	funcCall    = call{"all_reduce_func #2 (10 × uint64, a function)", func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllReduceFunc(ctx, c, make([]uint64, 10), composeAll)
	}}
)

// valuesOf is the broadcast of slices.
func valuesOf(n int) call {
	return call{"broadcast_values #2 (root 0)", func(ctx context.Context, c *nexar.Comm) error {
		return nexar.BroadcastValues(ctx, c, 0, make([][]int, n))
	}}
}

func reduceOf(count, root int) call {
	return call{fmt.Sprintf("reduce #2 (%d × int16, sum, root %d)", count, root), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.Reduce(ctx, c, make([]int16, count), nexar.Sum, root)
	}}
}

func gatherOf(count, root int) call {
	return call{fmt.Sprintf("gather #2 (%d × uint8, root %d)", count, root), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.Gather(ctx, c, make([]uint8, count*c.Size()), make([]uint8, count), root)
	}}
}

func scatterOf(count, root int) call {
	return call{fmt.Sprintf("scatter #2 (%d × uint8, root %d)", count, root), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.Scatter(ctx, c, make([]uint8, count), make([]uint8, count*c.Size()), root)
	}}
}

func allGatherOf(count int) call {
	return call{fmt.Sprintf("all_gather #2 (%d × float64)", count), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllGather(ctx, c, make([]float64, count*c.Size()), make([]float64, count))
	}}
}

func allToAllOf(count int) call {
	return call{fmt.Sprintf("all_to_all #2 (%d × float64)", count), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllToAll(ctx, c, make([]float64, count*c.Size()), make([]float64, count*c.Size()))
	}}
}

func scanOf(op nexar.Op) call {
	return call{fmt.Sprintf("scan #2 (3 × int64, %v)", op), func(ctx context.Context, c *nexar.Comm) error {
		return nexar.Scan(ctx, c, make([]int64, 3), op)
	}}
}

// mismatches returns pairs of different calls.
func mismatches() [][2]call {
	return [][2]call{
		{barrierCall, allReduceOf[float32](10, nexar.Sum)},
		{barrierCall, broadcastOf(10, 0)},
		{barrierCall, scanOf(nexar.Sum)},
		{broadcastOf(10, 0), broadcastOf(11, 0)},
		{broadcastOf(10, 0), broadcastOf(10, 1)},
		{broadcastOf(10, 1), broadcastOf(10, 0)},
		{broadcastOf(0, 1), broadcastOf(0, 0)},
		{broadcastOf(100_000, 1), broadcastOf(100_000, 0)},
		{broadcastOf(100_000, 0), broadcastOf(100_001, 0)},
		{broadcastOf(100_000, 0), allReduceOf[float32](100_000, nexar.Sum)},
		{allReduceOf[float32](10, nexar.Sum), allReduceOf[float32](0, nexar.Sum)},
		{allReduceOf[float32](10, nexar.Sum), allReduceOf[float32](11, nexar.Sum)},
		{allReduceOf[float32](10, nexar.Sum), allReduceOf[float32](1_000_000, nexar.Sum)},
		{allReduceOf[float32](1_000_000, nexar.Sum), allReduceOf[float32](1_000_001, nexar.Sum)},
		{allReduceOf[float32](10, nexar.Sum), allReduceOf[float32](10, nexar.Max)},
		{allReduceOf[float32](10, nexar.Sum), allReduceOf[int32](10, nexar.Sum)},
		{allReduceOf[uint64](10, nexar.Sum), funcCall},
		{valuesOf(1), valuesOf(2)},
		{reduceOf(10, 0), reduceOf(10, 1)},
		{reduceOf(10, 1), reduceOf(10, 0)},
		{gatherOf(10, 0), gatherOf(10, 1)},
		{gatherOf(10, 1), gatherOf(10, 0)},
		{gatherOf(10, 0), gatherOf(9, 0)},
		{gatherOf(10, 0), scatterOf(10, 0)},
		{scatterOf(10, 0), scatterOf(10, 1)},
		{scatterOf(10, 1), scatterOf(10, 0)},
		{allGatherOf(3), allToAllOf(3)},
		{allGatherOf(3), allGatherOf(30_000)},
		{scanOf(nexar.Sum), scanOf(nexar.Min)},
	}
}

// TestMismatch: if one rank makes a different call, all ranks get an error that names the
// ranks and their calls. A rank that has completed its part gets it from its next call. A brief test runs each mismatch
// with one of the sizes and one rank, and each size over both media.
func TestMismatch(t *testing.T) {
	for k, n := range []int{2, 5} {
		for i, calls := range mismatches() {
			for odd := range min(n, 3) {
				if !worldtest.AllTrials() && (odd != i%min(n, 3) || i%2 != k) {
					continue
				}
				name := fmt.Sprintf("ranks=%d/%s, but rank %d %s", n, calls[0].text, odd, calls[1].text)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					m := worldtest.Mem()
					if i%9 == odd {
						m = worldtest.QUIC()
					}
					mismatch(t, m, n, odd, calls[0], calls[1])
				})
			}
		}
	}
}

func mismatch(t *testing.T, m worldtest.Medium, n, odd int, most, other call) {
	comms := m.Cluster(t, n, nexar.Config{BucketBytes: 400})
	ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
	defer cancel()
	began := time.Now()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		f := most.f
		if rank == odd {
			f = other.f
		}
		// The others may have found the mismatch before this rank has left the barrier.
		err := c.Barrier(ctx)
		if err == nil {
			err = f(ctx, c)
		}
		for err == nil {
			err = c.Barrier(ctx)
		}
		e, ok := errors.AsType[*nexar.MismatchError](err)
		if !ok {
			return fmt.Errorf("%w, want a MismatchError", err)
		}
		wrong := e.Call.String() != most.text && e.Call.String() != other.text ||
			e.PeerCall.String() != most.text && e.PeerCall.String() != other.text ||
			e.Rank != odd && e.Peer != odd || e.Call.Seq != 2
		if odd == e.Rank {
			wrong = wrong || e.Call.String() != other.text
		} else {
			wrong = wrong || e.PeerCall.String() != other.text
		}
		names := strings.Contains(err.Error(), fmt.Sprintf("rank %d called %s", odd, other.text))
		if wrong || !names {
			return fmt.Errorf("%w\nshould say that rank %d called %s and another %s", err, odd, other.text, most.text)
		}
		// If the calls have the same text, the error names the difference.
		if how := most.differs(); most.text == other.text && !strings.HasSuffix(e.Error(), how) {
			return fmt.Errorf("%w\nshould end with %q", err, how)
		}
		// All later calls return the same error.
		if next := c.Barrier(ctx); !errors.Is(next, nexar.ErrRevoked) || !strings.Contains(next.Error(), e.Error()) {
			return fmt.Errorf("the next call: %v, want ErrRevoked because %v", next, e)
		}
		if next := nexar.Send(ctx, c, []int8{1}, 0, 0); !errors.Is(next, nexar.ErrRevoked) {
			return fmt.Errorf("the next send: %v, want ErrRevoked", next)
		}
		return nil
	})
	if took := time.Since(began); took > worldtest.Patience {
		t.Errorf("it took %v, want less than %v", took, worldtest.Patience)
	}
}

// TestMismatchByOne: a rank that has omitted a call, or made one too many, is found.
func TestMismatchByOne(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
	defer cancel()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		for i := range 100 {
			if i == 70 && rank == 1 {
				continue
			}
			x := make([]float32, 10+i)
			if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
				e, ok := errors.AsType[*nexar.MismatchError](err)
				if !ok || e.Call.Seq != 71 || e.Call.Length+e.PeerCall.Length != 80+81 {
					return fmt.Errorf("%w, want a MismatchError of the lengths 80 and 81 in call 71", err)
				}
				return nil
			}
		}
		return errors.New("the ranks made different calls without an error")
	})
}

// TestMismatchOfSettings: two ranks with different settings for the same call get an
// error that says so. Otherwise they could wait for each other.
func TestMismatchOfSettings(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
	defer cancel()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		k := kinds()[0]
		tr := trial{collective: plan.AllReduce, kind: k, op: nexar.Sum, count: 10, algorithm: rank, channels: 1, late: -1}
		_, err := tr.on(ctx, c)
		if _, ok := errors.AsType[*nexar.MismatchError](err); !ok || !strings.Contains(err.Error(), "their settings differ") {
			return fmt.Errorf("%w, want a MismatchError that tells of settings", err)
		}
		return nil
	})
}
