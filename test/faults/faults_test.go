package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// Each test of this file describes a fault of the Rust crate nexar 0.1, and fails if this package
// has it.

// TestPipelinedAllReduceReducesAll: a pipelined all-reduce of 25,557,032 elements (the
// gradient of a ResNet-50) on 4 ranks left 20 of them unreduced.
func TestPipelinedAllReduceReducesAll(t *testing.T) {
	require.NoRace(t, "it copies gigabytes")
	count := 25_557_032
	if worldtest.Brief() {
		count /= 64
	}
	for _, test := range []struct {
		m        worldtest.Medium
		channels []int // 0: chosen by the tuner
	}{{worldtest.Mem(), []int{0, 7, 64}}, {worldtest.TLS(), []int{0}}} {
		t.Run(test.m.Name, func(t *testing.T) {
			test.m.Require(t)
			reduceRamps(t, test.m.Cluster(t, 4, nexar.Config{}), count, test.channels)
		})
	}
}

// reduceRamps all-reduces vectors of count elements, once for each number of channels in counts.
func reduceRamps(t *testing.T, comms []*nexar.Comm, count int, counts []int) {
	ranks := len(comms)
	vectors := make([][]float32, ranks)
	for rank := range vectors {
		vectors[rank] = make([]float32, count)
	}
	for _, channels := range counts {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			x := vectors[rank]
			worldtest.FillRamp(x, rank)
			if channels > 0 {
				if err := c.SetAlgorithms(fmt.Sprintf("all_reduce=ring/%d", channels)); err != nil {
					return err
				}
			}
			if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
				return err
			}
			if wrong, first := worldtest.CheckRamps(x, ranks); wrong > 0 {
				return fmt.Errorf("%d channels: %d of %d elements are wrong, the first is element %d: %v", channels, wrong, count, first, x[first])
			}
			return nil
		})
	}
}

// TestReduceScatterGivesOwnBlock: reduce_scatter gave rank r the block of rank r+1.
func TestReduceScatterGivesOwnBlock(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		comms := worldtest.Mem().Cluster(t, n, nexar.Config{})
		for _, a := range plan.Algorithms(plan.ReduceScatter) {
			for _, count := range []int{1, 5, 40_000} {
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					pin := "reduce_scatter=" + a.Name
					if !a.Shared {
						pin += "/1" // over a link
					}
					if err := c.SetAlgorithms(pin); err != nil {
						return err
					}
					src, dst := make([]int32, n*count), make([]int32, count)
					for k := range src {
						src[k] = int32(k / count * 1000) // of the block
					}
					if err := nexar.ReduceScatter(t.Context(), c, dst, src, nexar.Sum); err != nil {
						return err
					}
					for k, got := range dst {
						if want := int32(rank * 1000 * n); got != want {
							return fmt.Errorf("%s: element %d is %d, of block %d, want %d", a.Name, k, got, int(got)/1000/n, want)
						}
					}
					return nil
				})
			}
		}
	}
}

// TestTagMismatchLosesNothing: a message with another tag than the receive was an error,
// and was lost.
func TestTagMismatchLosesNothing(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{1, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				comms := m.Cluster(t, 2, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				const tags = 5
				sent := make(chan error, tags)
				for tag := range nexar.Tag(tags) {
					go func() { sent <- nexar.Send(ctx, comms[0], slices.Repeat([]int32{int32(tag)}, count), 1, tag) }()
				}
				for tag := nexar.Tag(tags - 1); tag >= 0; tag-- {
					x := make([]int32, count)
					got, err := nexar.Recv(ctx, comms[1], x, 0, tag)
					if err != nil || got.Tag != tag || x[0] != int32(tag) || x[count-1] != int32(tag) {
						t.Fatalf("receive of tag %d: got %+v, [%d …], %v", tag, got, x[0], err)
					}
				}
				for range tags {
					if err := <-sent; err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestBarrierAmongHeartbeats: heartbeats entered the queue of the barrier, which failed
// after a second.
func TestBarrierAmongHeartbeats(t *testing.T) {
	t.Parallel()
	const ranks = 3
	nodes, _ := worldtest.JoinAll(t, ranks, nexar.SeedConfig{}, nexar.Config{
		Transports: []string{"quic"}, HeartbeatInterval: time.Millisecond, HeartbeatTimeout: 10 * worldtest.Patience,
	})
	a := make([]*nexar.Comm, ranks)
	for rank, n := range nodes {
		a[rank] = n.World()
	}
	var entered atomic.Int64
	worldtest.OnAll(t, a, func(rank int, c *nexar.Comm) error {
		for i := range 200 {
			switch {
			case i == 100 && rank == 1:
				time.Sleep(1200 * time.Millisecond)
			case i%20 == 0:
				time.Sleep(time.Duration(rank) * 3 * time.Millisecond)
			}
			entered.Add(1)
			if err := c.Barrier(t.Context()); err != nil {
				return fmt.Errorf("barrier %d: %w", i, err)
			}
			if n := entered.Load(); n < int64((i+1)*ranks) {
				return fmt.Errorf("barrier %d ended when %d of %d ranks had entered", i, n-int64(i*ranks), ranks)
			}
		}
		return nil
	})
}

// TestCancelledBulkKeepsStep: a cancelled bulk write left a partial frame in the stream, and the
// next bytes were taken for the rest of it.
func TestCancelledBulkKeepsStep(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC(), worldtest.SHMLinks(), worldtest.TLS(), worldtest.TCP()) {
		for _, side := range []string{"sender", "receiver", "collective"} {
			t.Run(m.Name+"/"+side, func(t *testing.T) {
				t.Parallel()
				m.Require(t)
				for _, after := range []time.Duration{300 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
					cancelBulk(t, m, side, after)
				}
			})
		}
	}
}

// cancelBulk cancels a long operation on one communicator, and checks that another one
// over the same connections still works.
func cancelBulk(t *testing.T, m worldtest.Medium, side string, after time.Duration) {
	a, b := m.Twice(t, 2)
	count := 1 << 20
	switch {
	case worldtest.Brief():
		count /= 4
	case m.Name == "mem":
		count *= 4
	}
	worldtest.OnAll(t, a, func(rank int, c *nexar.Comm) error {
		// A call that is cancelled before it starts is unknown to the other rank, so the
		// other rank waits for a limited time.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if rank == 0 && side != "receiver" || rank == 1 && side == "receiver" {
			short, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			ctx = short
			time.AfterFunc(after, func() { stop(worldtest.ErrCancelled) })
		}
		x := make([]float32, count)
		var err error
		switch {
		case side == "collective":
			err = nexar.AllReduce(ctx, c, x, nexar.Sum)
		case rank == 0:
			err = nexar.Send(ctx, c, x, 1, 0)
		default:
			_, err = nexar.Recv(ctx, c, x, 0, 0)
		}
		// The call may have ended before the cancellation.
		if err != nil && !errors.Is(err, nexar.ErrRevoked) && !errors.Is(err, worldtest.ErrCancelled) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		// After the end of the call the buffer belongs to the caller.
		worldtest.FillRamp(x, 1)
		time.Sleep(time.Millisecond)
		if wrong, first := worldtest.CheckRamps(x, 0); wrong != count || x[first] != worldtest.Ramp(1, first) {
			return fmt.Errorf("the buffer was written after the call had returned")
		}
		return nil
	})
	worldtest.OnAll(t, b, func(rank int, c *nexar.Comm) error {
		x := make([]float32, 300_000)
		worldtest.FillRamp(x, rank)
		if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
			return err
		}
		if wrong, first := worldtest.CheckRamps(x, 2); wrong > 0 {
			return fmt.Errorf("all_reduce: %d elements are wrong, the first is element %d: %v", wrong, first, x[first])
		}
		const block = 100_000
		src, dst := make([]int64, 2*block), make([]int64, 2*block)
		for i := range src {
			src[i] = int64(rank)<<40 | int64(i)
		}
		if err := nexar.AllToAll(t.Context(), c, dst, src); err != nil {
			return err
		}
		for i, got := range dst {
			if want := int64(i/block)<<40 | int64(rank*block+i%block); got != want {
				return fmt.Errorf("all_to_all: element %d is %#x, want %#x", i, got, want)
			}
		}
		return nil
	})
}
