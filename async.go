package nexar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Handle is an operation in progress, returned by one of the Start functions. A Start function
// does not wait for other ranks, with three exceptions: [StartAllToAllV] and
// [StartAllReduceCompressed] return when all ranks have called them, and [StartAllReduceBuckets]
// may wait until the first of many buckets are reduced. Start functions report errors
// by [Handle.Wait].
//
// Many operations can be in progress at once. They may end in any order, but all ranks must start
// the collectives of a communicator in the same order, blocking calls included.
//
// Until an operation has ended, the program must not use the buffers that it writes, nor change
// those that it reads. Buffers of operations in progress on one communicator must not overlap,
// unless all of them only read there. Otherwise the later operation fails with an [ErrOverlap]; beyond
// 64 operations in progress there is no check.
//
// The context of a Start function is that of the whole operation: if it ends first, the operation
// fails as the blocking call does. The operation goes on even if the program does not call Wait.
//
// The zero Handle has no operation: Done is closed, and Wait returns an error.
type Handle struct {
	comm   *Comm
	done   chan struct{}
	err    error
	status Status
	guard  *callback.Guard
	// waiters are the goroutines in Wait and the like. Without one, the program goes on without
	// the operation, which is then part of no deadlock.
	waiters p2p.Waiters
}

// await waits until the operation has ended.
func (h *Handle) await() {
	h.waiters.Await(h.ended())
}

// Wait waits until the operation has ended and returns its error. It may be called more than once
// and concurrently, with the same result. If the combine function of the operation has panicked,
// Wait panics.
func (h *Handle) Wait() error {
	h.await()
	if h.done == nil {
		return errors.New("nexar: wait: this Handle was not returned by a Start function: there is no operation to wait for")
	}
	if h.guard != nil {
		h.guard.Check()
	}
	return h.err
}

// Done is closed when the operation has ended.
func (h *Handle) Done() <-chan struct{} {
	h.waiters.Watch()
	return h.ended()
}

// ended is Done for this package.
func (h *Handle) ended() <-chan struct{} { return callback.Closed(h.done) }

// Status waits until the operation has ended, and describes the message that a [StartRecv] or
// [StartExchange] has received. It is zero after a failed receive and for other
// operations.
func (h *Handle) Status() Status {
	h.await()
	return h.status
}

// WaitAll waits for all handles, even if some fail, so that all buffers can be used again. It returns
// their errors, joined by [errors.Join]. It skips nil handles.
func WaitAll(handles ...*Handle) error {
	errs := make([]error, 0, len(handles))
	for _, h := range handles {
		if h != nil {
			h.await()
		}
	}
	for _, h := range handles {
		if h != nil {
			errs = append(errs, h.Wait())
		}
	}
	return errors.Join(errs...)
}

// WaitAny waits until an operation has ended, and returns the index of its handle and its error. It
// skips nil handles, so a program that sets each returned handle to nil gets all of them, one by one.
// If all handles are nil, the index is -1 and the error is nil. If ctx ends first, the index is -1,
// the error is that of ctx, and the operations go on. If the deadline of ctx has passed and operations wait for ranks, it is a
// [DeadlineError] with the ranks of those on one communicator, that of the first of them.
func WaitAny(ctx context.Context, handles ...*Handle) (index int, err error) {
	ended, stop := make(chan int, len(handles)), make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(stop)
	var comms []*Comm
	var waiters []*p2p.Waiters
	began := time.Now()
	for i, h := range handles {
		if h == nil {
			continue
		}
		select {
		case <-h.ended():
			return i, h.Wait()
		default:
		}
		if !slices.Contains(comms, h.comm) {
			comms = append(comms, h.comm)
		}
		waiters = append(waiters, &h.waiters)
		h.waiters.Enter()
		watching.Go(func() {
			defer h.waiters.Leave()
			select {
			case <-h.ended():
				ended <- i
			case <-stop:
			}
		})
	}
	if len(comms) == 0 {
		return -1, nil
	}
	select {
	case i := <-ended:
		return i, handles[i].Wait()
	case <-ctx.Done():
	}
	for _, c := range comms {
		err = cancelledBy(ctx, c.comm.AnyCause(ctx, time.Since(began), waiters))
		if _, isExplained := errors.AsType[*DeadlineError](err); isExplained {
			break
		}
	}
	return -1, opError("wait_any", err)
}

// StartBarrier starts a [Comm.Barrier]; see [Handle].
func (c *Comm) StartBarrier(ctx context.Context) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.Barrier, elements{Of: element{Size: 1}}, 0, 0))
}

// StartBroadcast starts a [Broadcast]; see [Handle].
func StartBroadcast[T any](ctx context.Context, c *Comm, data []T, root int) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.Broadcast, elementsOf(data), 0, root))
}

// StartReduce starts a [Reduce]; see [Handle].
func StartReduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.Reduction, numbersOf(data), kernel.Op(op), root))
}

// StartReduceFunc starts a [ReduceFunc]; see [Handle].
func StartReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) *Handle {
	return c.start(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.Reduction, elementsOf(data), combine, root))
}

// StartAllReduce starts an [AllReduce]; see [Handle].
func StartAllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.AllReduce, numbersOf(data), kernel.Op(op), 0))
}

// StartAllReduceFunc starts an [AllReduceFunc]; see [Handle].
func StartAllReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.AllReduce, elementsOf(data), combine, 0))
}

// StartGather starts a [Gather]; see [Handle].
func StartGather[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, new(task).OnBlocks(&c.runner, plan.Gather, elementsOf(dst), elementsOf(src), 0, root))
}

// StartAllGather starts an [AllGather]; see [Handle].
func StartAllGather[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, new(task).OnBlocks(&c.runner, plan.AllGather, elementsOf(dst), elementsOf(src), 0, 0))
}

// StartScatter starts a [Scatter]; see [Handle].
func StartScatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, new(task).OnBlocks(&c.runner, plan.Scatter, elementsOf(dst), elementsOf(src), 0, root))
}

// StartReduceScatter starts a [ReduceScatter]; see [Handle].
func StartReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) *Handle {
	return c.start(ctx, new(task).OnBlocks(&c.runner, plan.ReduceScatter, numbersOf(dst), numbersOf(src), kernel.Op(op), 0))
}

// StartAllToAll starts an [AllToAll]; see [Handle].
func StartAllToAll[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, new(task).OnBlocks(&c.runner, plan.AllToAll, elementsOf(dst), elementsOf(src), 0, 0))
}

// StartScan starts a [Scan]; see [Handle].
func StartScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.Scan, numbersOf(data), kernel.Op(op), 0))
}

// StartExclusiveScan starts an [ExclusiveScan]; see [Handle].
func StartExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).OnVector(&c.runner, plan.ExclusiveScan, numbersOf(data), kernel.Op(op), 0))
}

// StartScanFunc starts a [ScanFunc]; see [Handle].
func StartScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.Scan, elementsOf(data), combine, 0))
}

// StartExclusiveScanFunc starts an [ExclusiveScanFunc]; see [Handle].
func StartExclusiveScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.OnVectorFunc(new(task), &c.runner, plan.ExclusiveScan, elementsOf(data), combine, 0))
}

// StartMinLoc starts a [MinLoc]; see [Handle].
func StartMinLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, false, data, ranks)
}

// StartMaxLoc starts a [MaxLoc]; see [Handle].
func StartMaxLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, true, data, ranks)
}

// StartGatherV starts a [GatherV]; see [Handle]. It copies counts.
func StartGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, new(task).OnBlocksV(&c.runner, plan.Gather, elementsOf(dst), elementsOf(src), counts, 0, root))
}

// StartAllGatherV starts an [AllGatherV]; see [Handle]. It copies counts.
func StartAllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) *Handle {
	return c.start(ctx, new(task).OnBlocksV(&c.runner, plan.AllGather, elementsOf(dst), elementsOf(src), counts, 0, 0))
}

// StartScatterV starts a [ScatterV]; see [Handle]. It copies counts.
func StartScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, new(task).OnBlocksV(&c.runner, plan.Scatter, elementsOf(dst), elementsOf(src), counts, 0, root))
}

// StartReduceScatterV starts a [ReduceScatterV]; see [Handle]. It copies counts.
func StartReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) *Handle {
	return c.start(ctx, new(task).OnBlocksV(&c.runner, plan.ReduceScatter, numbersOf(dst), numbersOf(src), counts, kernel.Op(op), 0))
}

// StartAllToAllV starts an [AllToAllV]; see [Handle]. It blocks until all ranks have called it and
// have exchanged their counts.
func StartAllToAllV[T any](ctx context.Context, c *Comm, dst, src []T, dstCounts, srcCounts []int) *Handle {
	t, err := allToAllV(ctx, c, elementsOf(dst), elementsOf(src), dstCounts, srcCounts)
	if err != nil {
		return ended(err)
	}
	return c.start(ctx, t)
}

// hold registers memory that an operation writes when it ends, until release.
func (c *Comm) hold(name string, memory ...[]byte) (release func(), err error) {
	ids := make([]uint64, len(memory))
	release = func() {
		for _, id := range ids {
			c.flights.Leave(id)
		}
	}
	for i, m := range memory {
		if ids[i], err = c.enterFlight(overlap.Flight{Name: name, Write: m}); err != nil {
			release()
			return func() {}, err
		}
	}
	return release, nil
}

// start begins a task and returns its Handle; wrong parameters are an error of the Handle.
func (c *Comm) start(ctx context.Context, t *task) *Handle {
	var id uint64
	if t.Err == nil {
		id, t.Err = c.enterFlight(t.Flight())
	}
	op, err := c.begin(ctx, t)
	if err != nil {
		c.flights.Leave(id)
		return ended(err)
	}
	h := &Handle{comm: c, done: make(chan struct{}), guard: t.Guard}
	op.InBackground(&h.waiters)
	number := op.Number()
	c.comm.Go(func() {
		defer close(h.done)
		defer c.comm.EndBackground(number)
		defer c.flights.Leave(id)
		h.err = callback.ErrExited // in end, if that does not return
		h.err = c.end(ctx, t, op)
	})
	return h
}

// ended returns the Handle of an operation that has not started.
func ended(err error) *Handle {
	h := &Handle{done: make(chan struct{}), err: err}
	close(h.done)
	return h
}

// follow calls f, which makes calls, on a goroutine and returns the Handle that ends with it.
func (c *Comm) follow(f func(h *Handle) error) *Handle {
	h := new(Handle)
	done := c.comm.InBackground(&h.waiters)
	return c.background(h, func() error {
		defer done()
		return f(h)
	})
}

// background calls f on a goroutine and returns h, which ends with it.
func (c *Comm) background(h *Handle, f func() error) *Handle {
	h.comm, h.done = c, make(chan struct{})
	c.comm.Go(func() {
		defer close(h.done)
		h.err = callback.ErrExited // in f, if that does not return
		h.err = f()
	})
	return h
}

// enterFlight registers the memory of an operation until flights.Leave. It returns an error if that
// overlaps the memory of another operation in progress.
func (c *Comm) enterFlight(f overlap.Flight) (number uint64, err error) {
	number, other := c.flights.Enter(f)
	if other != nil {
		return 0, fmt.Errorf("%w: memory in use by %s, which is in progress", ErrOverlap, other.Name)
	}
	return number, nil
}
