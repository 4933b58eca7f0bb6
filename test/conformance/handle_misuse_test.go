package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/test/worldtest"
)

// endedWith checks that a started operation has ended at once, independently of other ranks,
// with the error of the blocking call.
func endedWith(h *nexar.Handle, name string, want error) error {
	select {
	case <-h.Done():
	case <-time.After(worldtest.Patience):
		return fmt.Errorf("%s, started: not over, want %w", name, want)
	}
	if got := h.Wait(); got == nil || got.Error() != want.Error() {
		return fmt.Errorf("%s, started: %w, want the error of the call that blocks: %w", name, got, want)
	}
	return nil
}

// TestStartInvalid: an invalid argument is the same error for the blocking call and for
// the started one, at once and on this rank alone.
func TestStartInvalid(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c, ctx, x, strings := comms[0], t.Context(), make([]int32, 4), make([]string, 1)
	counts := []int{2, 2}
	for name, p := range map[string]struct {
		call    error
		started *nexar.Handle
		want    error
	}{
		"broadcast":  {nexar.Broadcast(ctx, c, x, 2), nexar.StartBroadcast(ctx, c, x, 2), nexar.ErrInvalidRank},
		"of strings": {nexar.Broadcast(ctx, c, strings, 0), nexar.StartBroadcast(ctx, c, strings, 0), nexar.ErrInvalidType},
		"reduce":     {nexar.Reduce(ctx, c, x, nexar.Sum, -1), nexar.StartReduce(ctx, c, x, nexar.Sum, -1), nexar.ErrInvalidRank},
		"reduce_func": {
			nexar.ReduceFunc(ctx, c, x, nil, 0), nexar.StartReduceFunc(ctx, c, x, nil, 0), nexar.ErrInvalidOp,
		},
		"all_reduce": {nexar.AllReduce(ctx, c, x, 99), nexar.StartAllReduce(ctx, c, x, 99), nexar.ErrInvalidOp},
		"all_reduce_func": {
			nexar.AllReduceFunc(ctx, c, x, nil), nexar.StartAllReduceFunc(ctx, c, x, nil), nexar.ErrInvalidOp,
		},
		"gather":     {nexar.Gather(ctx, c, x[:3], x[:1], 0), nexar.StartGather(ctx, c, x[:3], x[:1], 0), nexar.ErrInvalidLength},
		"all_gather": {nexar.AllGather(ctx, c, x, x[1:3]), nexar.StartAllGather(ctx, c, x, x[1:3]), nexar.ErrOverlap},
		"scatter":    {nexar.Scatter(ctx, c, x[:1], x, 0), nexar.StartScatter(ctx, c, x[:1], x, 0), nexar.ErrInvalidLength},
		"reduce_scatter": {
			nexar.ReduceScatter(ctx, c, x[2:], x, nexar.Sum), nexar.StartReduceScatter(ctx, c, x[2:], x, nexar.Sum), nexar.ErrOverlap,
		},
		"all_to_all":     {nexar.AllToAll(ctx, c, x, x), nexar.StartAllToAll(ctx, c, x, x), nexar.ErrOverlap},
		"scan":           {nexar.Scan(ctx, c, x, 0), nexar.StartScan(ctx, c, x, 0), nexar.ErrInvalidOp},
		"exclusive_scan": {nexar.ExclusiveScan(ctx, c, x, 0), nexar.StartExclusiveScan(ctx, c, x, 0), nexar.ErrInvalidOp},
		"gather_v":       {nexar.GatherV(ctx, c, x, x[:1], counts, 0), nexar.StartGatherV(ctx, c, x, x[:1], counts, 0), nexar.ErrInvalidLength},
		"all_gather_v": {
			nexar.AllGatherV(ctx, c, x, x[:2], counts[:1]), nexar.StartAllGatherV(ctx, c, x, x[:2], counts[:1]), nexar.ErrInvalidLength,
		},
		"scatter_v": {nexar.ScatterV(ctx, c, x[:2], x, counts, 5), nexar.StartScatterV(ctx, c, x[:2], x, counts, 5), nexar.ErrInvalidRank},
		"reduce_scatter_v": {
			nexar.ReduceScatterV(ctx, c, x[1:3], x, counts, nexar.Sum), nexar.StartReduceScatterV(ctx, c, x[1:3], x, counts, nexar.Sum), nexar.ErrOverlap,
		},
		"all_to_all_v": {
			nexar.AllToAllV(ctx, c, x, x, counts, counts), nexar.StartAllToAllV(ctx, c, x, x, counts, counts), nexar.ErrOverlap,
		},
		"min_loc": {nexar.MinLoc(ctx, c, x, x[:1]), nexar.StartMinLoc(ctx, c, x, x[:1]), nexar.ErrInvalidLength},
		"max_loc": {nexar.MaxLoc(ctx, c, x, x), nexar.StartMaxLoc(ctx, c, x, x), nexar.ErrOverlap},
		"all_reduce_buckets": {
			nexar.AllReduceBuckets(ctx, c, [][]int32{x}, 99), nexar.StartAllReduceBuckets(ctx, c, [][]int32{x}, 99), nexar.ErrInvalidOp,
		},
		"all_reduce_compressed": {
			nexar.AllReduceCompressed(ctx, c, []float32{1}, nexar.Max, &compress.TopK{}),
			nexar.StartAllReduceCompressed(ctx, c, []float32{1}, nexar.Max, &compress.TopK{}), nexar.ErrInvalidOp,
		},
		"exchange": {
			exchangeError(ctx, c, x[:2], x[2:], 2, 0), nexar.StartExchange(ctx, c, x[:2], x[2:], 2, 0, 0), nexar.ErrInvalidRank,
		},
		"exchange, from": {
			exchangeError(ctx, c, x[:2], x[2:], 0, -7), nexar.StartExchange(ctx, c, x[:2], x[2:], 0, -7, 0), nexar.ErrInvalidRank,
		},
		"exchange, overlap": {
			exchangeError(ctx, c, x[:2], x[1:3], 0, 0), nexar.StartExchange(ctx, c, x[:2], x[1:3], 0, 0, 0), nexar.ErrOverlap,
		},
		"send": {nexar.Send(ctx, c, x, 1, -1), nexar.StartSend(ctx, c, x, 1, -1), nexar.ErrInvalidTag},
		"recv": {worldtest.RecvError(ctx, c, 2, 0), nexar.StartRecv(ctx, c, x[:1], 2, 0), nexar.ErrInvalidRank},
	} {
		if !errors.Is(p.call, p.want) {
			t.Errorf("%s: %v, want %v", name, p.call, p.want)
		} else if err := endedWith(p.started, name, p.call); err != nil {
			t.Error(err)
		}
	}
	worldtest.CheckWorks(t, comms)
}

func exchangeError(ctx context.Context, c *nexar.Comm, dst, src []int32, to, from int) error {
	_, err := nexar.Exchange(ctx, c, dst, src, to, from, 0)
	return err
}

// TestStartClosed: no operation starts on a closed communicator.
func TestStartClosed(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	c := comms[0]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs(c, 3) {
		want := p.call(t.Context())
		if !errors.Is(want, nexar.ErrClosed) {
			t.Errorf("%s: %v, want %v", p.name, want, nexar.ErrClosed)
		} else if err := endedWith(p.start(t.Context()), p.name, want); err != nil {
			t.Error(err)
		}
	}
}

// TestStartCancelled: a collective with a context that has ended does not start, and the other
// ranks get an error that names this rank.
func TestStartCancelled(t *testing.T) {
	world := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	over, cancel := context.WithCancelCause(t.Context())
	cancel(worldtest.ErrCancelled)
	for i := range pairs(world[0], 3) {
		worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
			child, err := c.Dup(t.Context())
			if err != nil {
				return err
			}
			defer child.Close()
			p := pairs(child, 3)[i]
			if rank == 0 {
				if err := p.start(over).Wait(); !errors.Is(err, worldtest.ErrCancelled) || !strings.HasPrefix(err.Error(), "nexar: "+p.name+": ") {
					return fmt.Errorf("%s, started: %w, want %w", p.name, err, worldtest.ErrCancelled)
				}
				return nil
			}
			err = p.start(t.Context()).Wait()
			if err == nil { // Its own part may have ended, as that of a root.
				err = child.StartBarrier(t.Context()).Wait()
			}
			if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != 0 || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error()) {
				return fmt.Errorf("%s: %w, want that rank 0 has cancelled", p.name, err)
			}
			return nil
		})
	}
}

// TestCancelledHandle: a cancelled operation ends all operations of the communicator, on
// all ranks, with errors that name its rank.
func TestCancelledHandle(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{1, 30_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				comms := m.Cluster(t, 3, nexar.Config{})
				var begun sync.WaitGroup
				begun.Add(len(comms))
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error { return cancelOneOf(t, c, count, &begun) })
				for rank, c := range comms {
					var err error
					for err == nil { // Rank 2 may still succeed if it has not heard of the revocation.
						err = nexar.StartAllReduce(t.Context(), c, make([]float32, count), nexar.Sum).Wait()
					}
					if !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), "rank 1: its call was cancelled: "+worldtest.ErrCancelled.Error()) {
						t.Errorf("rank %d, later: %v", rank, err)
					}
				}
			})
		}
	}
}

// cancelOneOf starts 20 all-reduces. Rank 2 takes part in the first ten only. Rank 1
// cancels one of the others after these have ended.
func cancelOneOf(t *testing.T, c *nexar.Comm, count int, begun *sync.WaitGroup) error {
	const all, common, cancelled = 20, 10, 15
	stopped, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var handles []*nexar.Handle
	for i := range all {
		if i >= common && c.Rank() == 2 {
			break
		}
		ctx := t.Context()
		if i == cancelled && c.Rank() == 1 {
			ctx = stopped
		}
		handles = append(handles, nexar.StartAllReduce(ctx, c, make([]float32, count), nexar.Sum))
	}
	err := nexar.WaitAll(handles[:common]...)
	begun.Done()
	if err != nil || c.Rank() == 2 {
		return err
	}
	begun.Wait()
	stop(worldtest.ErrCancelled)
	for i, h := range handles[common:] {
		err := h.Wait()
		if i+common == cancelled && c.Rank() == 1 {
			if !errors.Is(err, worldtest.ErrCancelled) || errors.Is(err, nexar.ErrRevoked) {
				return fmt.Errorf("the one that was cancelled: %w", err)
			}
			continue
		}
		r, ok := errors.AsType[*nexar.RevokedError](err)
		if !ok || r.Rank != 1 || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error()) {
			return fmt.Errorf("all-reduce %d: %w, want that rank 1 has cancelled", i+common, err)
		}
	}
	return nil
}

// TestHandleOfPanic: a panic of a function is repeated by each Wait. Without a Wait it
// still revokes the communicator.
func TestHandleOfPanic(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, dropped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dropped=%v", m.Name, dropped), func(t *testing.T) {
				comms := m.Cluster(t, 3, nexar.Config{})
				var culprit atomic.Int32 // its rank plus 1
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					h := nexar.StartAllReduceFunc(t.Context(), c, make([]int32, 1000), func(dst, src []int32) {
						if culprit.CompareAndSwap(0, int32(rank)+1) {
							panic("on purpose")
						}
					})
					<-h.Done()
					if int32(rank)+1 == culprit.Load() && !dropped {
						for range 3 {
							if p := fmt.Sprint(panicOf(func() { h.Wait() })); !strings.Contains(p, "on purpose") {
								return fmt.Errorf("Wait panics with %s", p)
							}
							if p := fmt.Sprint(panicOf(func() { nexar.WaitAll(nil, h) })); !strings.Contains(p, "on purpose") {
								return fmt.Errorf("WaitAll panics with %s", p)
							}
						}
					}
					err := c.Barrier(t.Context())
					if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != int(culprit.Load())-1 || !strings.Contains(err.Error(), "on purpose") {
						return fmt.Errorf("later: %w, want that rank %d has revoked", err, culprit.Load()-1)
					}
					return nil
				})
			})
		}
	}
}

// panicOf returns the value that f panics with, or nil.
func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

// TestOverlapInFlight: operations in progress may share memory that they read, but not
// memory that one of them writes. After their end the memory is free.
func TestOverlapInFlight(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 2, nexar.Config{})
	c, ctx := comms[0], t.Context()
	const n = 40_000
	x, y, z, dst := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, 2*n)
	running := []*nexar.Handle{
		nexar.StartAllReduce(ctx, c, x[:n/2], nexar.Sum),
		nexar.StartBroadcast(ctx, c, y, 0),
		nexar.StartReduce(ctx, c, y[5:], nexar.Sum, 1),
		nexar.StartAllGather(ctx, c, dst, y),
		nexar.StartSend(ctx, c, y, 1, 3),
		nexar.StartSend(ctx, c, y[1:], 1, 3),
		nexar.StartRecv(ctx, c, z, 1, 4),
		nexar.StartAllReduce(ctx, c, x[n/2:], nexar.Sum),
		nexar.StartAllReduce(ctx, c, x[3:3], nexar.Sum),
	}
	// The sends of the root of a broadcast, and of the other ranks of a reduce, may
	// have ended.
	const ofY = "broadcast, reduce, all_gather"
	for _, test := range []struct {
		what   string
		handle *nexar.Handle
		other  string // the operation that the error names
	}{
		{"the same vector", nexar.StartAllReduce(ctx, c, x[:n/2], nexar.Sum), "all_reduce"},
		{"one element of it", nexar.StartAllReduce(ctx, c, x[n/2-1:n/2], nexar.Sum), "all_reduce"},
		{"read of memory that is written", nexar.StartBroadcast(ctx, c, x[:1], 0), "all_reduce"},
		{"write of memory that is read", nexar.StartBroadcast(ctx, c, y[:9], 1), ofY},
		{"its source", nexar.StartGather(ctx, c, dst[:2], y[:1], 0), "all_gather"},
		{"its destination", nexar.StartScan(ctx, c, dst[n:], nexar.Sum), "all_gather"},
		{"send of memory that is received", nexar.StartSend(ctx, c, z, 1, 3), "recv"},
		{"receive into memory that is sent", nexar.StartRecv(ctx, c, y[n-1:], 1, 9), ofY},
		{"receive into memory that is reduced", nexar.StartRecv(ctx, c, x[:1], 1, 9), "all_reduce"},
	} {
		err := test.handle.Wait()
		named := slices.ContainsFunc(strings.Split(test.other, ", "), func(name string) bool {
			return err != nil && strings.HasSuffix(err.Error(), "memory in use by "+name+", which is in progress")
		})
		if !errors.Is(err, nexar.ErrOverlap) || !named {
			t.Errorf("%s: %v, want an ErrOverlap with %s", test.what, err, test.other)
		}
	}
	worldtest.OnAll(t, comms[1:], func(_ int, c *nexar.Comm) error {
		return nexar.WaitAll(
			nexar.StartAllReduce(ctx, c, make([]int32, n/2), nexar.Sum), nexar.StartBroadcast(ctx, c, make([]int32, n), 0),
			nexar.StartReduce(ctx, c, make([]int32, n-5), nexar.Sum, 1), nexar.StartAllGather(ctx, c, make([]int32, 2*n), make([]int32, n)),
			nexar.StartRecv(ctx, c, make([]int32, n), 0, 3), nexar.StartRecv(ctx, c, make([]int32, n), 0, 3),
			nexar.StartSend(ctx, c, make([]int32, n), 0, 4), nexar.StartAllReduce(ctx, c, make([]int32, n/2), nexar.Sum),
			nexar.StartAllReduce(ctx, c, make([]int32, 0), nexar.Sum),
		)
	})
	if err := nexar.WaitAll(running...); err != nil {
		t.Fatal(err)
	}
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		for _, v := range [][]int32{x, y, z, dst} {
			if rank == 1 {
				v = slices.Clone(v)
			}
			if err := nexar.StartAllReduce(ctx, c, v, nexar.Sum).Wait(); err != nil {
				return fmt.Errorf("after the end of the others: %w", err)
			}
		}
		return nil
	})
}
