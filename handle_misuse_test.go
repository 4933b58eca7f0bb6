package nexar

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

	"github.com/nexar-go/nexar/compress"
)

// endedWith checks that an operation is over as soon as it has been started,
// whatever other ranks do, and has the error of the call that blocks.
func endedWith(h *Handle, name string, want error) error {
	select {
	case <-h.Done():
	case <-time.After(patience):
		return fmt.Errorf("%s, started: not over, want %w", name, want)
	}
	if got := h.Wait(); got == nil || got.Error() != want.Error() {
		return fmt.Errorf("%s, started: %w, want the error of the call that blocks: %w", name, got, want)
	}
	return nil
}

// TestStartInvalid: a wrong argument is the same error whether the call blocks
// or not, at once and on this rank alone.
func TestStartInvalid(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	c, ctx, x, strings := comms[0], t.Context(), make([]int32, 4), make([]string, 1)
	counts := []int{2, 2}
	for name, p := range map[string]struct {
		call    error
		started *Handle
		want    error
	}{
		"broadcast":  {Broadcast(ctx, c, x, 2), StartBroadcast(ctx, c, x, 2), ErrInvalidRank},
		"of strings": {Broadcast(ctx, c, strings, 0), StartBroadcast(ctx, c, strings, 0), ErrInvalidType},
		"reduce":     {Reduce(ctx, c, x, Sum, -1), StartReduce(ctx, c, x, Sum, -1), ErrInvalidRank},
		"reduce_func": {
			ReduceFunc(ctx, c, x, nil, 0), StartReduceFunc(ctx, c, x, nil, 0), ErrInvalidOp,
		},
		"all_reduce": {AllReduce(ctx, c, x, 99), StartAllReduce(ctx, c, x, 99), ErrInvalidOp},
		"all_reduce_func": {
			AllReduceFunc(ctx, c, x, nil), StartAllReduceFunc(ctx, c, x, nil), ErrInvalidOp,
		},
		"gather":     {Gather(ctx, c, x[:3], x[:1], 0), StartGather(ctx, c, x[:3], x[:1], 0), ErrInvalidLength},
		"all_gather": {AllGather(ctx, c, x, x[1:3]), StartAllGather(ctx, c, x, x[1:3]), ErrOverlap},
		"scatter":    {Scatter(ctx, c, x[:1], x, 0), StartScatter(ctx, c, x[:1], x, 0), ErrInvalidLength},
		"reduce_scatter": {
			ReduceScatter(ctx, c, x[2:], x, Sum), StartReduceScatter(ctx, c, x[2:], x, Sum), ErrOverlap,
		},
		"all_to_all":     {AllToAll(ctx, c, x, x), StartAllToAll(ctx, c, x, x), ErrOverlap},
		"scan":           {Scan(ctx, c, x, 0), StartScan(ctx, c, x, 0), ErrInvalidOp},
		"exclusive_scan": {ExclusiveScan(ctx, c, x, 0), StartExclusiveScan(ctx, c, x, 0), ErrInvalidOp},
		"gather_v":       {GatherV(ctx, c, x, x[:1], counts, 0), StartGatherV(ctx, c, x, x[:1], counts, 0), ErrInvalidLength},
		"all_gather_v": {
			AllGatherV(ctx, c, x, x[:2], counts[:1]), StartAllGatherV(ctx, c, x, x[:2], counts[:1]), ErrInvalidLength,
		},
		"scatter_v": {ScatterV(ctx, c, x[:2], x, counts, 5), StartScatterV(ctx, c, x[:2], x, counts, 5), ErrInvalidRank},
		"reduce_scatter_v": {
			ReduceScatterV(ctx, c, x[1:3], x, counts, Sum), StartReduceScatterV(ctx, c, x[1:3], x, counts, Sum), ErrOverlap,
		},
		"all_to_all_v": {
			AllToAllV(ctx, c, x, x, counts, counts), StartAllToAllV(ctx, c, x, x, counts, counts), ErrOverlap,
		},
		"min_loc": {MinLoc(ctx, c, x, x[:1]), StartMinLoc(ctx, c, x, x[:1]), ErrInvalidLength},
		"max_loc": {MaxLoc(ctx, c, x, x), StartMaxLoc(ctx, c, x, x), ErrOverlap},
		"all_reduce_buckets": {
			AllReduceBuckets(ctx, c, [][]int32{x}, 99), StartAllReduceBuckets(ctx, c, [][]int32{x}, 99), ErrInvalidOp,
		},
		"all_reduce_compressed": {
			AllReduceCompressed(ctx, c, []float32{1}, Max, &compress.TopK{}),
			StartAllReduceCompressed(ctx, c, []float32{1}, Max, &compress.TopK{}), ErrInvalidOp,
		},
		"exchange": {
			exchangeError(ctx, c, x[:2], x[2:], 2, 0), StartExchange(ctx, c, x[:2], x[2:], 2, 0, 0), ErrInvalidRank,
		},
		"exchange, from": {
			exchangeError(ctx, c, x[:2], x[2:], 0, -7), StartExchange(ctx, c, x[:2], x[2:], 0, -7, 0), ErrInvalidRank,
		},
		"exchange, overlap": {
			exchangeError(ctx, c, x[:2], x[1:3], 0, 0), StartExchange(ctx, c, x[:2], x[1:3], 0, 0, 0), ErrOverlap,
		},
		"send": {Send(ctx, c, x, 1, -1), StartSend(ctx, c, x, 1, -1), ErrInvalidTag},
		"recv": {recvError(ctx, c, 2, 0), StartRecv(ctx, c, x[:1], 2, 0), ErrInvalidRank},
	} {
		if !errors.Is(p.call, p.want) {
			t.Errorf("%s: %v, want %v", name, p.call, p.want)
		} else if err := endedWith(p.started, name, p.call); err != nil {
			t.Error(err)
		}
	}
	stillWorks(t, comms)
}

func exchangeError(ctx context.Context, c *Comm, dst, src []int32, to, from int) error {
	_, err := Exchange(ctx, c, dst, src, to, from, 0)
	return err
}

// TestStartClosed: nothing begins on a communicator that is closed.
func TestStartClosed(t *testing.T) {
	comms := overMem.cluster(t, 2, Config{})
	c := comms[0]
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs(c, 3) {
		want := p.call(t.Context())
		if !errors.Is(want, ErrClosed) {
			t.Errorf("%s: %v, want %v", p.name, want, ErrClosed)
		} else if err := endedWith(p.start(t.Context()), p.name, want); err != nil {
			t.Error(err)
		}
	}
}

// TestStartCancelled: a collective whose context has ended beforehand does not
// begin, which the other ranks are told.
func TestStartCancelled(t *testing.T) {
	world := overMem.cluster(t, 2, Config{})
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	for i := range pairs(world[0], 3) {
		onAll(t, world, func(rank int, c *Comm) error {
			child, err := c.Dup(t.Context())
			if err != nil {
				return err
			}
			defer child.Close()
			p := pairs(child, 3)[i]
			if rank == 0 {
				if err := p.start(over).Wait(); !errors.Is(err, errEnough) || !strings.HasPrefix(err.Error(), "nexar: "+p.name+": ") {
					return fmt.Errorf("%s, started: %w, want %w", p.name, err, errEnough)
				}
				return nil
			}
			err = p.start(t.Context()).Wait()
			if err == nil { // Its own part has ended, as that of a root may.
				err = child.StartBarrier(t.Context()).Wait()
			}
			if r, ok := errors.AsType[*RevokedError](err); !ok || r.Rank != 0 || !strings.Contains(err.Error(), errEnough.Error()) {
				return fmt.Errorf("%s: %w, want that rank 0 has cancelled", p.name, err)
			}
			return nil
		})
	}
}

// TestCancelledHandle: the end of one context in flight ends all that is under
// way on the communicator, on all ranks, with errors that name the rank.
func TestCancelledHandle(t *testing.T) {
	for _, m := range []medium{overMem, overLinks, overSim, overQUIC} {
		for _, count := range []int{1, 30_000} {
			t.Run(fmt.Sprintf("%s/%d", m.name, count), func(t *testing.T) {
				comms := m.cluster(t, 3, Config{})
				var begun sync.WaitGroup
				begun.Add(len(comms))
				onAll(t, comms, func(rank int, c *Comm) error { return cancelOneOf(t, c, count, &begun) })
				for rank, c := range comms {
					var err error
					for err == nil { // Rank 2 may still find all that it needs, if it has not been told yet.
						err = StartAllReduce(t.Context(), c, make([]float32, count), Sum).Wait()
					}
					if !errors.Is(err, ErrRevoked) || !strings.Contains(err.Error(), "rank 1: its call was cancelled: "+errEnough.Error()) {
						t.Errorf("rank %d, later: %v", rank, err)
					}
				}
			})
		}
	}
}

// cancelOneOf begins 20 all-reduces, of which rank 2 takes part in the first ten
// only, and cancels one of the others on rank 1 when those ten have ended.
func cancelOneOf(t *testing.T, c *Comm, count int, begun *sync.WaitGroup) error {
	const all, common, cancelled = 20, 10, 15
	stopped, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var handles []*Handle
	for i := range all {
		if i >= common && c.Rank() == 2 {
			break
		}
		ctx := t.Context()
		if i == cancelled && c.Rank() == 1 {
			ctx = stopped
		}
		handles = append(handles, StartAllReduce(ctx, c, make([]float32, count), Sum))
	}
	err := WaitAll(handles[:common]...)
	begun.Done()
	if err != nil || c.Rank() == 2 {
		return err
	}
	begun.Wait()
	stop(errEnough)
	for i, h := range handles[common:] {
		err := h.Wait()
		if i+common == cancelled && c.Rank() == 1 {
			if !errors.Is(err, errEnough) || errors.Is(err, ErrRevoked) {
				return fmt.Errorf("the one that was cancelled: %w", err)
			}
			continue
		}
		r, ok := errors.AsType[*RevokedError](err)
		if !ok || r.Rank != 1 || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), errEnough.Error()) {
			return fmt.Errorf("all-reduce %d: %w, want that rank 1 has cancelled", i+common, err)
		}
	}
	return nil
}

// TestHandleOfPanic: a function that panics does so in whoever waits, each time,
// and if nobody does it ends the communicator all the same.
func TestHandleOfPanic(t *testing.T) {
	for _, m := range []medium{overMem, overLinks, overQUIC} {
		for _, dropped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dropped=%v", m.name, dropped), func(t *testing.T) {
				comms := m.cluster(t, 3, Config{})
				var culprit atomic.Int32 // plus 1
				onAll(t, comms, func(rank int, c *Comm) error {
					h := StartAllReduceFunc(t.Context(), c, make([]int32, 1000), func(dst, src []int32) {
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
							if p := fmt.Sprint(panicOf(func() { WaitAll(nil, h) })); !strings.Contains(p, "on purpose") {
								return fmt.Errorf("WaitAll panics with %s", p)
							}
						}
					}
					err := c.Barrier(t.Context())
					if r, ok := errors.AsType[*RevokedError](err); !ok || r.Rank != int(culprit.Load())-1 || !strings.Contains(err.Error(), "on purpose") {
						return fmt.Errorf("later: %w, want that rank %d has revoked", err, culprit.Load()-1)
					}
					return nil
				})
			})
		}
	}
}

// panicOf is what f panics with, or nil.
func panicOf(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

// TestOverlapInFlight: what one operation under way writes no other may use; what
// they read they may share. Afterwards the memory is free again.
func TestOverlapInFlight(t *testing.T) {
	comms := overLinks.cluster(t, 2, Config{})
	c, ctx := comms[0], t.Context()
	const n = 40_000
	x, y, z, dst := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, 2*n)
	running := []*Handle{
		StartAllReduce(ctx, c, x[:n/2], Sum),
		StartBroadcast(ctx, c, y, 0),
		StartReduce(ctx, c, y[5:], Sum, 1),
		StartAllGather(ctx, c, dst, y),
		StartSend(ctx, c, y, 1, 3),
		StartSend(ctx, c, y[1:], 1, 3),
		StartRecv(ctx, c, z, 1, 4),
		StartAllReduce(ctx, c, x[n/2:], Sum),
		StartAllReduce(ctx, c, x[3:3], Sum),
	}
	// What the root of a broadcast and others of a reduce send may have ended.
	const ofY = "broadcast, reduce, all_gather"
	for _, test := range []struct {
		what   string
		handle *Handle
		other  string // the first of these that is under way
	}{
		{"the same vector", StartAllReduce(ctx, c, x[:n/2], Sum), "all_reduce"},
		{"one element of it", StartAllReduce(ctx, c, x[n/2-1:n/2], Sum), "all_reduce"},
		{"reading what is written", StartBroadcast(ctx, c, x[:1], 0), "all_reduce"},
		{"writing what is read", StartBroadcast(ctx, c, y[:9], 1), ofY},
		{"its source", StartGather(ctx, c, dst[:2], y[:1], 0), "all_gather"},
		{"its destination", StartScan(ctx, c, dst[n:], Sum), "all_gather"},
		{"sending what is received", StartSend(ctx, c, z, 1, 3), "recv"},
		{"receiving what is sent", StartRecv(ctx, c, y[n-1:], 1, 9), ofY},
		{"receiving what is reduced", StartRecv(ctx, c, x[:1], 1, 9), "all_reduce"},
	} {
		err := test.handle.Wait()
		named := slices.ContainsFunc(strings.Split(test.other, ", "), func(name string) bool {
			return err != nil && strings.HasSuffix(err.Error(), "with those of "+name+", which is under way")
		})
		if !errors.Is(err, ErrOverlap) || !named {
			t.Errorf("%s: %v, want an ErrOverlap with %s", test.what, err, test.other)
		}
	}
	onAll(t, comms[1:], func(_ int, c *Comm) error {
		return WaitAll(
			StartAllReduce(ctx, c, make([]int32, n/2), Sum), StartBroadcast(ctx, c, make([]int32, n), 0),
			StartReduce(ctx, c, make([]int32, n-5), Sum, 1), StartAllGather(ctx, c, make([]int32, 2*n), make([]int32, n)),
			StartRecv(ctx, c, make([]int32, n), 0, 3), StartRecv(ctx, c, make([]int32, n), 0, 3),
			StartSend(ctx, c, make([]int32, n), 0, 4), StartAllReduce(ctx, c, make([]int32, n/2), Sum),
			StartAllReduce(ctx, c, make([]int32, 0), Sum),
		)
	})
	if err := WaitAll(running...); err != nil {
		t.Fatal(err)
	}
	onAll(t, comms, func(rank int, c *Comm) error {
		for _, v := range [][]int32{x, y, z, dst} {
			if rank == 1 {
				v = slices.Clone(v)
			}
			if err := StartAllReduce(ctx, c, v, Sum).Wait(); err != nil {
				return fmt.Errorf("after the end of the others: %w", err)
			}
		}
		return nil
	})
}
