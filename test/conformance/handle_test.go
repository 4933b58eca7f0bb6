package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// start is call, with the Start function.
func (p *party[T]) start(ctx context.Context, c *nexar.Comm) *nexar.Handle {
	dst, src := p.data.v, p.input.v
	switch p.collective {
	case plan.Barrier:
		return c.StartBarrier(ctx)
	case plan.Broadcast:
		return nexar.StartBroadcast(ctx, c, dst, p.root)
	case plan.Reduction:
		return nexar.StartReduce(ctx, c, dst, p.op, p.root)
	case plan.AllReduce:
		if p.custom {
			return nexar.StartAllReduceFunc(ctx, c, dst, composeAll[T])
		}
		return nexar.StartAllReduce(ctx, c, dst, p.op)
	case plan.Gather:
		if p.absent {
			dst = nil
		}
		return nexar.StartGather(ctx, c, dst, src, p.root)
	case plan.AllGather:
		return nexar.StartAllGather(ctx, c, dst, src)
	case plan.Scatter:
		if p.rank != p.root && p.rank%2 == 0 {
			src = nil
		}
		return nexar.StartScatter(ctx, c, dst, src, p.root)
	case plan.ReduceScatter:
		return nexar.StartReduceScatter(ctx, c, dst, src, p.op)
	case plan.AllToAll:
		return nexar.StartAllToAll(ctx, c, dst, src)
	case plan.Scan:
		return nexar.StartScan(ctx, c, dst, p.op)
	case plan.ExclusiveScan:
		return nexar.StartExclusiveScan(ctx, c, dst, p.op)
	}
	panic("no such collective")
}

// TestStarted: a started collective has the same result as the blocking one.
func TestStarted(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		for _, n := range []int{1, 2, 3, 5} {
			if m.Name != "mem" && n != 3 || worldtest.Brief() && n < 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				comms := m.Cluster(t, n, nexar.Config{BucketBytes: 4096})
				for _, count := range []int{0, 3, 20_000} {
					worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
						called, started := pairs(c, count), pairs(c, count)
						for i, p := range started {
							if err := called[i].call(t.Context()); err != nil {
								return fmt.Errorf("%s: %w", p.name, err)
							}
							if err := p.start(t.Context()).Wait(); err != nil {
								return fmt.Errorf("%s, started: %w", p.name, err)
							}
							if !slices.EqualFunc(p.written, called[i].written, bytes.Equal) {
								return fmt.Errorf("%s of %d elements has another result if it is started", p.name, count)
							}
						}
						return nil
					})
				}
			})
		}
	}
}

// TestRandomHandles: each rank waits for the same random collectives in an order of its
// own, on several goroutines, with blocking calls in between.
func TestRandomHandles(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			const n = 4
			comms := m.Cluster(t, n, nexar.Config{})
			b := trialGenerator{n: n, kinds: kinds(), network: m.Cost}
			rounds, most := 25, 64
			switch {
			case !worldtest.AllTrials():
				rounds = 2
			case m.Name != "mem":
				rounds = 4
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range rounds {
				steps := rapid.SliceOfN(rapid.Custom(b.drawStep).Filter(func(s step) bool { return s.shift == 0 }), 20, most).Example(rng.Int())
				orders := make([][]int, n)
				for rank := range orders {
					orders[rank] = rng.Perm(len(steps))
				}
				inOrders(t, comms, steps, orders)
			}
		})
	}
}

// inOrders starts the collectives of steps on all ranks, most of them by Start functions.
// Each rank waits for them in an order of its own.
func inOrders(t *testing.T, comms []*nexar.Comm, steps []step, orders [][]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
	defer cancel()
	results := make([][][]byte, len(steps))
	for i := range results {
		results[i] = make([][]byte, len(comms))
	}
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		ends := make([]func() ([]byte, error), len(steps))
		for i, s := range steps {
			time.Sleep(time.Duration(s.pauses[rank]/8) * 10 * time.Microsecond)
			s.started = i%5 != 3
			ends[i] = s.begin(ctx, c)
		}
		const waiters = 3
		return worldtest.ForEach(waiters, func(waiter int) (err error) {
			for k, i := range orders[rank] {
				if k%waiters != waiter {
					continue
				}
				if results[i][rank], err = ends[i](); err != nil {
					cancel()
					return fmt.Errorf("%d of %d, %v: %w", i, len(steps), steps[i], err)
				}
			}
			return nil
		})
	})
	for i, s := range steps {
		if err := s.compare(results[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyHandles: 64 collectives run at once, some of them over links although the ranks
// share memory, and the ranks wait for them from both ends.
func TestManyHandles(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		for _, n := range []int{1, 2, 5} {
			if worldtest.Brief() && m.Name != worldtest.Mem().Name && n != 2 {
				continue
			}
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				comms := m.Cluster(t, n, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					vectors, handles := make([][]int64, 64), make([]*nexar.Handle, 64)
					for i := range handles {
						length := 1 + i*i*5
						if !worldtest.AllTrials() && i%4 != 3 {
							length = 1 + i
						}
						vectors[i] = slices.Repeat([]int64{int64(rank + i)}, length)
						handles[i] = nexar.StartAllReduce(t.Context(), c, vectors[i], nexar.Sum)
					}
					for k := range handles {
						i := k
						if rank%2 == 1 {
							i = len(handles) - 1 - k
						}
						if err := handles[i].Wait(); err != nil {
							return err
						}
						want := int64(n*i + n*(n-1)/2)
						if at := slices.IndexFunc(vectors[i], func(x int64) bool { return x != want }); at >= 0 {
							return fmt.Errorf("all-reduce %d: element %d is %d, want %d", i, at, vectors[i][at], want)
						}
					}
					return nil
				})
			})
		}
	}
}

// TestDroppedHandles: operations without a Wait do not disturb others, and leave nothing
// behind after Close.
func TestDroppedHandles(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				for i := range 100 {
					nexar.StartAllReduce(t.Context(), c, make([]int64, 1+i*50), nexar.Sum)
				}
				x := []int64{int64(rank)}
				if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil || x[0] != 3 {
					return fmt.Errorf("a call behind them: %d, %w", x[0], err)
				}
				return nil
			})
		})
	}
}

// TestDroppedHandlesEnd: operations without a Wait complete, unless the communicator
// ends.
func TestDroppedHandlesEnd(t *testing.T) {
	worldtest.InFakeTime(t, 3, func(t *testing.T, w *worldtest.World, _ *sim.Network) {
		comms := w.Comms
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			x := slices.Repeat([]int64{int64(rank)}, 10_000)
			nexar.StartAllReduce(t.Context(), c, x, nexar.Sum)
			time.Sleep(time.Minute)
			if err := c.Barrier(t.Context()); err != nil {
				return err
			}
			if i := slices.IndexFunc(x, func(v int64) bool { return v != 3 }); i >= 0 {
				return fmt.Errorf("element %d is %d, want 3", i, x[i])
			}
			return nil
		})
	})
}

// TestWaitAgain: Wait and Done may be called repeatedly, by several goroutines.
func TestWaitAgain(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	good := nexar.StartAllReduce(t.Context(), comms[0], []int32{1}, nexar.Sum)
	if err := nexar.AllReduce(t.Context(), comms[1], []int32{1}, nexar.Sum); err != nil {
		t.Fatal(err)
	}
	bad := nexar.StartAllReduce(ctx, comms[0], []int32{1}, nexar.Sum)
	select {
	case <-bad.Done():
		t.Fatal("an all-reduce has ended before another rank has called it")
	case <-time.After(10 * time.Millisecond):
	}
	var waiting sync.WaitGroup
	for range 8 {
		waiting.Go(func() {
			for range 3 {
				if err := good.Wait(); err != nil {
					t.Error(err)
				}
				if err := bad.Wait(); !errors.Is(err, worldtest.ErrCancelled) {
					t.Errorf("got %v, want %v", err, worldtest.ErrCancelled)
				}
				<-good.Done()
				<-bad.Done()
				if got := good.Status(); got != (nexar.Status{}) {
					t.Errorf("the status of a collective is %+v, want zero", got)
				}
			}
		})
	}
	cancel(worldtest.ErrCancelled)
	waiting.Wait()
}

// TestWaitAll: WaitAll waits for all handles, also after an error, and returns all
// errors.
func TestWaitAll(t *testing.T) {
	if err := errors.Join(nexar.WaitAll(), nexar.WaitAll(nil, nil)); err != nil {
		t.Errorf("WaitAll without handles: %v", err)
	}
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c, ctx := comms[0], t.Context()
	x, y := []int32{1}, []int32{2}
	handles := []*nexar.Handle{
		nexar.StartAllReduce(ctx, c, x, 99),
		nexar.StartRecv(ctx, c, y, 1, 5),
		nil,
		nexar.StartBroadcast(ctx, c, x, 7),
	}
	all := make(chan error, 1)
	go func() { all <- nexar.WaitAll(handles...) }()
	select {
	case err := <-all:
		t.Fatalf("WaitAll has not waited for the last operation: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	if err := nexar.Send(ctx, comms[1], []int32{42}, 0, 5); err != nil {
		t.Fatal(err)
	}
	err := <-all
	if !errors.Is(err, nexar.ErrInvalidOp) || !errors.Is(err, nexar.ErrInvalidRank) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, want both errors", err)
	}
	if y[0] != 42 {
		t.Errorf("received %d, want 42", y[0])
	}
	if err := nexar.WaitAll(handles[1], handles[2]); err != nil {
		t.Errorf("WaitAll of handles without errors: %v", err)
	}
}
