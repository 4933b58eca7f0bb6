package nexar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport/mem"
)

// Each test here is named after a fault of an earlier runtime of this name,
// which must not come back.

// A pipelined all-reduce of 25,557,032 elements (the gradient of a ResNet-50)
// on 4 ranks left 20 of them unreduced.
func TestPipelinedAllReduceReducesAll(t *testing.T) {
	count := 25_557_032
	if raceDetector {
		count /= 16
	}
	for _, test := range []struct {
		m        medium
		channels []int // 0: as the tuner likes it
	}{{overMem, []int{0, 7, 64}}, {overTCP, []int{0}}} {
		t.Run(test.m.name, func(t *testing.T) {
			test.m.needs(t)
			reduceRamps(t, test.m.cluster(t, 4, Config{}), count, test.channels)
		})
	}
}

// reduceRamps all-reduces long vectors with several numbers of channels.
func reduceRamps(t *testing.T, comms []*Comm, count int, counts []int) {
	ranks := len(comms)
	ring := slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(a plan.Algorithm) bool { return a.Name == "ring" })
	vectors := make([][]float32, ranks)
	for rank := range vectors {
		vectors[rank] = make([]float32, count)
	}
	for _, channels := range counts {
		onAll(t, comms, func(rank int, c *Comm) error {
			x := vectors[rank]
			fillRamp(x, rank)
			tuner := c.book.Tuner()
			defer func() { c.book.SetTuner(tuner) }()
			if channels > 0 {
				c.book.SetTuner(selector.Chooser(func(cost.Need) cost.Choice {
					return cost.Choice{Index: ring, Algorithm: plan.Algorithms(plan.AllReduce)[ring], Channels: channels}
				}))
			}
			if err := AllReduce(t.Context(), c, x, Sum); err != nil {
				return err
			}
			if wrong, first := checkRamps(x, ranks); wrong > 0 {
				return fmt.Errorf("%d channels: %d of %d elements are wrong, the first is element %d: %v", channels, wrong, count, first, x[first])
			}
			return nil
		})
	}
}

// ramp is small enough for the sums of all ranks to be exact.
func ramp(rank, i int) float32 { return float32((i*7+rank*1_000_003)%100_003 + 1) }

//go:norace
func fillRamp(x []float32, rank int) {
	for i := range x {
		x[i] = ramp(rank, i)
	}
}

// checkRamps counts the elements of x that are not the sum of all ramps.
//
//go:norace
func checkRamps(x []float32, ranks int) (wrong, first int) {
	for i := len(x) - 1; i >= 0; i-- {
		var want float32
		for rank := range ranks {
			want += ramp(rank, i)
		}
		if x[i] != want {
			wrong, first = wrong+1, i
		}
	}
	return wrong, first
}

// reduce_scatter gave rank r the block of rank r+1.
func TestReduceScatterGivesOwnBlock(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		comms := overMem.cluster(t, n, Config{})
		for i, a := range plan.Algorithms(plan.ReduceScatter) {
			for _, count := range []int{1, 5, 40_000} {
				onAll(t, comms, func(rank int, c *Comm) error {
					tuner := c.book.Tuner()
					defer func() { c.book.SetTuner(tuner) }()
					c.book.SetTuner(selector.Chooser(func(cost.Need) cost.Choice { return cost.Choice{Index: i, Algorithm: a, Channels: 1} }))
					src, dst := make([]int32, n*count), make([]int32, count)
					for k := range src {
						src[k] = int32(k / count * 1000) // the block that it is in
					}
					if err := ReduceScatter(t.Context(), c, dst, src, Sum); err != nil {
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

// A message with another tag than the one asked for was an error, and lost.
func TestTagMismatchLosesNothing(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC} {
		for _, count := range []int{1, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.name, count), func(t *testing.T) {
				comms := m.cluster(t, 2, Config{})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				const tags = 5
				sent := make(chan error, tags)
				for tag := range Tag(tags) {
					go func() { sent <- Send(ctx, comms[0], slices.Repeat([]int32{int32(tag)}, count), 1, tag) }()
				}
				for tag := Tag(tags - 1); tag >= 0; tag-- {
					x := make([]int32, count)
					got, err := Recv(ctx, comms[1], x, 0, tag)
					if err != nil || got.Tag != tag || x[0] != int32(tag) || x[count-1] != int32(tag) {
						t.Fatalf("receiving tag %d: %v, %+v, [%d …]", tag, err, got, x[0])
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

// Heartbeats came into the queue of the barrier, which then failed after a
// second.
func TestBarrierAmongHeartbeats(t *testing.T) {
	t.Parallel()
	const ranks = 3
	a, _ := linked(t, overQUIC, ranks, time.Millisecond)
	var entered atomic.Int64
	onAll(t, a, func(rank int, c *Comm) error {
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
				return fmt.Errorf("barrier %d ended when %d of %d ranks had come", i, n-int64(i*ranks), ranks)
			}
		}
		return nil
	})
}

// A bulk write that was cancelled left half of it in the stream, and what came
// behind it was taken for the rest.
func TestCancelledBulkKeepsStep(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC, overRings, overTCP, overPlainTCP} {
		for _, side := range []string{"sender", "receiver", "collective"} {
			t.Run(m.name+"/"+side, func(t *testing.T) {
				t.Parallel()
				m.needs(t)
				for _, after := range []time.Duration{300 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
					cancelBulk(t, m, side, after)
				}
			})
		}
	}
}

// cancelBulk cancels something large on one communicator, and checks that
// another one over the same connections still gets what it is sent.
func cancelBulk(t *testing.T, m medium, side string, after time.Duration) {
	a, b := linked(t, m, 2, 0)
	count := 1 << 20
	switch {
	case raceDetector:
		count /= 4
	case m.name == "mem":
		count *= 4
	}
	onAll(t, a, func(rank int, c *Comm) error {
		// A call that is cancelled before it begins tells the other rank
		// nothing, which therefore must not wait for long.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if rank == 0 && side != "receiver" || rank == 1 && side == "receiver" {
			short, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			ctx = short
			time.AfterFunc(after, func() { stop(errEnough) })
		}
		x := make([]float32, count)
		var err error
		switch {
		case side == "collective":
			err = AllReduce(ctx, c, x, Sum)
		case rank == 0:
			err = Send(ctx, c, x, 1, 0)
		default:
			_, err = Recv(ctx, c, x, 0, 0)
		}
		// It may be too late to cancel it, or too early for anyone to notice.
		if err != nil && !errors.Is(err, ErrRevoked) && !errors.Is(err, errEnough) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		// From the end of the call on the buffer is the caller's again.
		fillRamp(x, 1)
		time.Sleep(time.Millisecond)
		if wrong, first := checkRamps(x, 0); wrong != count || x[first] != ramp(1, first) {
			return fmt.Errorf("the buffer was written after the call had ended")
		}
		return nil
	})
	for _, tr := range []trial{
		{collective: plan.AllReduce, kind: kinds()[8], op: Sum, flavour: exact, count: 300_000, algorithm: -1, late: -1},
		{collective: plan.AllToAll, kind: kinds()[3], op: Sum, count: 100_000, algorithm: -1, late: -1},
	} {
		if err := tr.run(b); err != nil {
			t.Fatal(err)
		}
	}
}

// linked makes two communicators over the same connections.
func linked(t *testing.T, m medium, n int, heartbeat time.Duration) (a, b []*Comm) {
	t.Helper()
	cfg, err := Config{}.fill()
	if err != nil {
		t.Fatal(err)
	}
	view, transports, end, err := m.listen(n)
	if err != nil {
		t.Fatal(err)
	}
	meshes := make([]*mesh.Mesh, n)
	a, b = make([]*Comm, n), make([]*Comm, n)
	err = forEach(n, func(rank int) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		meshes[rank], err = mesh.Form(ctx, mesh.Config{
			Self: view.Nodes[rank].ID, View: view, Paths: pathsOf(transports[rank]), Loop: mem.Loop,
			HeartbeatInterval: heartbeat, HeartbeatTimeout: 10 * patience,
		})
		if err != nil {
			return errors.Join(err, transports[rank].Close())
		}
		if a[rank], err = newWorld(ctx, meshes[rank], view, m.network, cfg); err != nil {
			return err
		}
		links, err := meshes[rank].Links(view)
		b[rank] = a[rank].node.wrap(&comm.Comm{
			View: a[rank].impl.View, Engine: meshes[rank].Engine().NewComm(2, rank, links), Rank: rank, Ranks: a[rank].impl.Ranks, Nodes: view.Nodes,
			Book: selector.New(rank, n, comm.NewPool(cfg.Memory), cost.New(m.network)),
		})
		return err
	})
	t.Cleanup(func() {
		closing := forEach(n, func(rank int) error {
			if meshes[rank] == nil {
				return nil
			}
			return node.CloseMesh(meshes[rank])
		})
		if err := errors.Join(closing, end()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}
