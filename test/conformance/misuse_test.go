package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestInvalidArguments: an invalid argument is an error that names it and the reason, at
// once and on this rank alone. The communicator goes on.
func TestInvalidArguments(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	c := comms[0]
	ctx := t.Context()
	ints, floats, halves, brains := make([]int32, 6), make([]float32, 6), make([]nexar.Float16, 6), make([]nexar.BFloat16, 6)
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"broadcast", nexar.Broadcast(ctx, c, ints, 3), nexar.ErrInvalidRank, "nexar: broadcast: invalid rank: root 3 of 3 ranks"},
		{"reduce", nexar.Reduce(ctx, c, ints, nexar.Sum, -1), nexar.ErrInvalidRank, "nexar: reduce: invalid rank: root -1 of 3 ranks"},
		{"gather", nexar.Gather(ctx, c, ints, ints[:2], 7), nexar.ErrInvalidRank, "nexar: gather: invalid rank: root 7 of 3 ranks"},
		{"scatter", nexar.Scatter(ctx, c, ints[:2], ints, -2), nexar.ErrInvalidRank, "nexar: scatter: invalid rank: root -2 of 3 ranks"},
		{"reduce", nexar.Reduce(ctx, c, ints, nexar.Sum, nexar.NoRank), nexar.ErrInvalidRank, "root -2 of 3 ranks"},
		{"gather_v", nexar.GatherV(ctx, c, ints, ints[:2], []int{2, 2, 2}, nexar.NoRank), nexar.ErrInvalidRank, "root -2 of 3 ranks"},
		{"broadcast_buckets", nexar.BroadcastBuckets(ctx, c, [][]int32{ints}, nexar.NoRank), nexar.ErrInvalidRank, "root -2 of 3 ranks"},
		{"broadcast_values", nexar.BroadcastValues(ctx, c, nexar.NoRank, ints), nexar.ErrInvalidRank, "root -2 of 3 ranks"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, ints[:2], []int{2, 4}), nexar.ErrInvalidLength, "2 counts for 3 ranks"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, ints[:2], []int{2, -1, 5}), nexar.ErrInvalidLength, "counts[1] is -1: must not be negative"},
		{"all_gather_v", nexar.AllGatherV(ctx, c, ints, ints[:2], []int{2, math.MaxInt, 2}), nexar.ErrInvalidLength, "all blocks together have at most "},

		{"gather", nexar.Gather(ctx, c, ints[:5], ints[:2], 0), nexar.ErrInvalidLength, "dst has 5 elements, not 6"},
		{"all_gather", nexar.AllGather(ctx, c, ints, ints[:1]), nexar.ErrInvalidLength, "dst has 6 elements, not 3"},
		{"scatter", nexar.Scatter(ctx, c, ints[:2], ints[:4], 0), nexar.ErrInvalidLength, "src has 4 elements, not 6"},
		{"reduce_scatter", nexar.ReduceScatter(ctx, c, ints[:2], ints[:5], nexar.Sum), nexar.ErrInvalidLength, "src has 5 elements, not 6"},
		{"all_to_all", nexar.AllToAll(ctx, c, ints, ints[:3]), nexar.ErrInvalidLength, "dst has 6 elements, not 3"},
		{"all_to_all", nexar.AllToAll(ctx, c, make([]int32, 4), ints[:4]), nexar.ErrInvalidLength, "not a multiple of 3 ranks"},
		{"all_to_all", nexar.AllToAll(ctx, c, ints[:3], ints[2:5]), nexar.ErrOverlap, "dst and src share memory"},

		{"all_to_all", nexar.AllToAll(ctx, c, ints, ints), nexar.ErrOverlap, "dst and src share memory"},
		{"gather", nexar.Gather(ctx, c, ints, ints[1:3], 0), nexar.ErrOverlap, "src shares memory with dst, but is not block 0 of it"},
		{"all_gather", nexar.AllGather(ctx, c, ints, ints[2:4]), nexar.ErrOverlap, "src shares memory with dst, but is not block 0 of it"},
		{"all_gather", nexar.AllGather(ctx, c, ints, ints[1:3]), nexar.ErrOverlap, "but is not block 0 of it"},
		{"scatter", nexar.Scatter(ctx, c, ints[4:6], ints, 0), nexar.ErrOverlap, "dst shares memory with src, but is not block 0 of it"},
		{"reduce_scatter", nexar.ReduceScatter(ctx, c, ints[1:3], ints, nexar.Sum), nexar.ErrOverlap, "dst shares memory with src"},
		{"reduce_scatter", nexar.ReduceScatter(ctx, comms[1], ints[:2], ints, nexar.Sum), nexar.ErrOverlap, "but is not block 1 of it"},

		{"all_reduce", nexar.AllReduce(ctx, c, ints, 0), nexar.ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", nexar.AllReduce(ctx, c, ints, 9), nexar.ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", nexar.AllReduce(ctx, c, ints, 255), nexar.ErrInvalidOp, "nexar: all_reduce: invalid op"},
		{"all_reduce", nexar.AllReduce(ctx, c, floats, nexar.BitAnd), nexar.ErrInvalidOp, "bit_and is not defined for float32"},
		{"all_reduce", nexar.AllReduce(ctx, c, make([]float64, 1), nexar.BitXor), nexar.ErrInvalidOp, "bit_xor is not defined for float64"},
		{"reduce", nexar.Reduce(ctx, c, halves, nexar.BitOr, 0), nexar.ErrInvalidOp, "bit_or is not defined for float16"},
		{"reduce_scatter", nexar.ReduceScatter(ctx, c, brains[:2], brains, nexar.BitXor), nexar.ErrInvalidOp, "bit_xor is not defined for bfloat16"},
		{"scan", nexar.Scan(ctx, c, floats, nexar.BitAnd), nexar.ErrInvalidOp, "bit_and is not defined for float32"},
		{"exclusive_scan", nexar.ExclusiveScan(ctx, c, floats, 42), nexar.ErrInvalidOp, "nexar: exclusive_scan: invalid op: op 42 is not defined for float32"},
		{"all_reduce_func", nexar.AllReduceFunc(ctx, c, floats, nil), nexar.ErrInvalidOp, "the function is nil"},

		{"send", nexar.Send(ctx, c, ints, 3, 0), nexar.ErrInvalidRank, "to rank 3 of 3 ranks"},
		{"send", nexar.Send(ctx, c, ints, nexar.AnyRank, 0), nexar.ErrInvalidRank, "to rank -1 (AnyRank) of 3 ranks: only a receive or a probe accepts it"},
		{"send", nexar.Send(ctx, c, ints, 1, nexar.AnyTag), nexar.ErrInvalidTag, "invalid tag: -1 (AnyTag): only a receive or a probe accepts it: use a tag of at least 0"},
		{"recv", worldtest.RecvError(ctx, c, 3, 0), nexar.ErrInvalidRank, "from rank 3 of 3 ranks"},
		{"recv", worldtest.RecvError(ctx, c, -3, 0), nexar.ErrInvalidRank, "from rank -3 of 3 ranks"},
		{"recv", worldtest.RecvError(ctx, c, 1, -2), nexar.ErrInvalidTag, "invalid tag: -2: must be at least 0"},
	} {
		if !errors.Is(test.err, test.want) || !strings.HasPrefix(test.err.Error(), "nexar: "+test.name+": ") || !strings.Contains(test.err.Error(), test.text) {
			t.Errorf("%s: %v, want %v and the text %q", test.name, test.err, test.want, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

func TestLocalOfNoRanks(t *testing.T) {
	for _, n := range []int{0, -1} {
		if _, err := nexar.Local(t.Context(), n, nexar.Config{}); !errors.Is(err, nexar.ErrConfig) {
			t.Errorf("Local of %d ranks: %v, want ErrConfig", n, err)
		}
	}
}

func TestClosed(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c := comms[0]
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	ctx, x := t.Context(), make([]int32, 2)
	for name, err := range map[string]error{
		"barrier":    c.Barrier(ctx),
		"all_reduce": nexar.AllReduce(ctx, c, x, nexar.Sum),
		"broadcast":  nexar.Broadcast(ctx, c, x, 0),
		"gather":     nexar.Gather(ctx, c, x, x[:1], 0),
		"send":       nexar.Send(ctx, c, x, 1, 0),
		"recv":       worldtest.RecvError(ctx, c, nexar.AnyRank, nexar.AnyTag),
	} {
		if !errors.Is(err, nexar.ErrClosed) || err.Error() != "nexar: "+name+": closed by this rank" {
			t.Errorf("%s of a closed communicator: %v", name, err)
		}
	}
}

// TestCloseDuringOperation: a rank that closes ends the operations that wait for it, and
// all later ones. The error names it.
func TestCloseDuringOperation(t *testing.T) {
	x := make([]float32, 300_000)
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for name, op := range map[string]func(ctx context.Context, c *nexar.Comm) error{
			"barrier": func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) },
			"recv":    func(ctx context.Context, c *nexar.Comm) error { return worldtest.RecvError(ctx, c, 1, 5) },
			"send":    func(ctx context.Context, c *nexar.Comm) error { return nexar.Send(ctx, c, x, 1, 5) },
			"broadcast": func(ctx context.Context, c *nexar.Comm) error {
				return nexar.Broadcast(ctx, c, make([]float32, len(x)), 1)
			},
			"scatter": func(ctx context.Context, c *nexar.Comm) error {
				return nexar.Scatter(ctx, c, make([]float32, 1), nil, 1)
			},
		} {
			t.Run(m.Name+"/"+name, func(t *testing.T) {
				comms := m.Cluster(t, 3, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == 1 {
						time.Sleep(10 * time.Millisecond)
						return c.Close()
					}
					for range 2 {
						err := op(ctx, c)
						if !errors.Is(err, nexar.ErrPeerFailed) && !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), "rank 1 ") {
							return fmt.Errorf("%s: %v, want an error that names rank 1", name, err)
						}
					}
					return nil
				})
			})
		}
	}
}

// TestCloseInMiddle: ranks in an operation with a rank that closes in the middle of it
// get an error that says so.
func TestCloseInMiddle(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, 4, nexar.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
			defer cancel()
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				if rank == 2 {
					time.AfterFunc(30*time.Millisecond, func() { c.Close() })
				}
				x := make([]float32, 500_000)
				for {
					err := nexar.AllReduce(ctx, c, x, nexar.Sum)
					switch {
					case err == nil:
						continue
					case rank == 2 && errors.Is(err, nexar.ErrClosed):
						return nil
					case (errors.Is(err, nexar.ErrRevoked) || errors.Is(err, nexar.ErrPeerFailed)) && strings.Contains(err.Error(), "rank 2"):
						return nil
					}
					return err
				}
			})
		})
	}
}

// TestRecvAfterLeave: a message that was only announced by a rank that has left cannot be
// received.
func TestRecvAfterLeave(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	sent := make(chan error)
	go func() { sent <- nexar.Send(ctx, comms[0], make([]float32, 100_000), 1, 3) }()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error { return c.Barrier(ctx) })
	time.Sleep(10 * time.Millisecond)
	if err := comms[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; !errors.Is(err, nexar.ErrClosed) {
		t.Errorf("send: %v, want ErrClosed", err)
	}
	_, err := nexar.Recv(ctx, comms[1], make([]float32, 100_000), 0, 3)
	if p, ok := errors.AsType[*nexar.PeerError](err); !ok || p.Rank != 0 || !p.Left {
		t.Errorf("recv: %v, want a PeerError: rank 0 has left", err)
	}
}

// TestRecvBeforeLeaving: the messages that a rank has sent before it left can still be
// received.
func TestRecvBeforeLeaving(t *testing.T) {
	times := 5
	if worldtest.Brief() {
		times = 1
	}
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{0, 10, 200_000} {
			for range times {
				comms := m.Cluster(t, 2, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == 0 {
						return errors.Join(nexar.Send(ctx, c, stream{0, 1, 0}.message(2)[:0], 1, 4), nexar.Send(ctx, c, make([]float32, count), 1, 3), c.Close())
					}
					x := make([]float32, count)
					if _, err := nexar.Recv(ctx, c, x, 0, 3); err != nil {
						return err
					}
					if count < 1000 {
						time.Sleep(5 * time.Millisecond) // by now rank 0 has left
						return errors.Join(worldtest.RecvError(ctx, c, 0, 4), c.Close())
					}
					return c.Close()
				})
				cancel()
			}
		}
	}
}
