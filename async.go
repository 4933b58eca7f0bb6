package nexar

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
)

// A Handle is an operation in progress, returned by one of the Start functions. StartAllToAllV and StartAllReduceCompressed return when all ranks
// have called them, StartAllReduceBuckets may wait for the first of many buckets;
// the others wait for no other rank.
//
// Operations are ordered by the calls that start them, including calls that
// block. The order has to be the same on all ranks. Many operations can be in
// progress at once, and they end in any order. The buffers of an operation belong
// to it until it has ended: buffers that it writes must not be used, and buffers
// that it reads must not be changed. Buffers of operations in progress on one
// communicator must not overlap, unless all of them only read there; otherwise Start
// returns an ErrOverlap, as long as no more than a few dozen operations are in
// progress.
//
// The context of a Start is that of the whole operation: if it ends first, the
// operation fails as the call that blocks does. It is no error not to wait for a
// Handle; its operation goes on.
//
// The zero Handle stands for no operation: it is done, and Wait returns an error
// that says so.
type Handle struct {
	done   chan struct{}
	err    error
	status Status
	guard  *callback.Guard
}

// Wait waits for the end of the operation and returns its error. Several goroutines may
// call it, more than once, with the same result.
// If the combine function of the operation has panicked, so does Wait.
func (h *Handle) Wait() error {
	<-h.Done()
	if h.done == nil {
		return errors.New("nexar: wait: this Handle was not returned by a Start function: there is no operation to wait for")
	}
	if h.guard != nil {
		h.guard.Check()
	}
	return h.err
}

// Done is closed when the operation has ended.
func (h *Handle) Done() <-chan struct{} { return callback.Closed(h.done) }

// Status describes the message that a StartRecv or StartExchange has received. It
// waits for the end of the operation.
func (h *Handle) Status() Status {
	<-h.Done()
	return h.status
}

// WaitAll waits for all handles, and returns their errors, joined. It waits for
// the last even if the first has failed, so that all buffers can be used again.
// It skips nil handles.
func WaitAll(handles ...*Handle) error {
	errs := make([]error, 0, len(handles))
	for _, h := range handles {
		if h != nil {
			<-h.Done()
		}
	}
	for _, h := range handles {
		if h != nil {
			errs = append(errs, h.Wait())
		}
	}
	return errors.Join(errs...)
}

// WaitAny waits until the operation of one of the handles has ended, and returns the index of the
// handle and the error of the operation. It skips nil handles: a program that sets the returned
// one to nil gets the others from later calls, and the index -1 without an error when none is
// left. If ctx ends first, the index is -1 and the operations go on.
func WaitAny(ctx context.Context, handles ...*Handle) (index int, err error) {
	ended, stop := make(chan int, len(handles)), make(chan struct{})
	var watching sync.WaitGroup
	defer watching.Wait()
	defer close(stop)
	none := true
	for i, h := range handles {
		if h == nil {
			continue
		}
		none = false
		select {
		case <-h.Done():
			return i, h.Wait()
		default:
		}
		watching.Go(func() {
			select {
			case <-h.Done():
				ended <- i
			case <-stop:
			}
		})
	}
	if none {
		return -1, nil
	}
	select {
	case i := <-ended:
		return i, handles[i].Wait()
	case <-ctx.Done():
		return -1, opError("wait_any", cancelled(ctx))
	}
}

// Each function below starts the collective of the same name; see Handle.

// StartBarrier starts a Barrier.
func (c *Comm) StartBarrier(ctx context.Context) *Handle { return c.start(ctx, new(task).Barrier()) }

// StartBroadcast starts a Broadcast; see Handle.
func StartBroadcast[T any](ctx context.Context, c *Comm, data []T, root int) *Handle {
	return c.start(ctx, new(task).Broadcast(&c.runner, elementsOf(data), root))
}

// StartReduce starts a Reduce; see Handle.
func StartReduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) *Handle {
	return c.start(ctx, new(task).Reduction(&c.runner, numbersOf(data), kernel.Op(op), root))
}

// StartReduceFunc starts a ReduceFunc; see Handle.
func StartReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) *Handle {
	return c.start(ctx, collective.ReduceFunc(new(task), &c.runner, elementsOf(data), combine, root))
}

// StartAllReduce starts an AllReduce; see Handle.
func StartAllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).AllReduce(&c.runner, numbersOf(data), kernel.Op(op)))
}

// StartAllReduceFunc starts an AllReduceFunc; see Handle.
func StartAllReduceFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.AllReduceFunc(new(task), &c.runner, elementsOf(data), combine))
}

// StartGather starts a Gather; see Handle.
func StartGather[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, new(task).Gather(&c.runner, elementsOf(dst), elementsOf(src), root))
}

// StartAllGather starts an AllGather; see Handle.
func StartAllGather[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, new(task).AllGather(&c.runner, elementsOf(dst), elementsOf(src)))
}

// StartScatter starts a Scatter; see Handle.
func StartScatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	return c.start(ctx, new(task).Scatter(&c.runner, elementsOf(dst), elementsOf(src), root))
}

// StartReduceScatter starts a ReduceScatter; see Handle.
func StartReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) *Handle {
	return c.start(ctx, new(task).ReduceScatter(&c.runner, numbersOf(dst), numbersOf(src), kernel.Op(op)))
}

// StartAllToAll starts an AllToAll; see Handle.
func StartAllToAll[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	return c.start(ctx, new(task).AllToAll(&c.runner, elementsOf(dst), elementsOf(src)))
}

// StartScan starts a Scan; see Handle.
func StartScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).Scan(&c.runner, numbersOf(data), kernel.Op(op)))
}

// StartExclusiveScan starts an ExclusiveScan; see Handle.
func StartExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	return c.start(ctx, new(task).ExclusiveScan(&c.runner, numbersOf(data), kernel.Op(op)))
}

// StartScanFunc starts a [ScanFunc]; see [Handle].
func StartScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.ScanFunc(new(task), &c.runner, elementsOf(data), combine))
}

// StartExclusiveScanFunc starts an [ExclusiveScanFunc]; see [Handle].
func StartExclusiveScanFunc[T any](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	return c.start(ctx, collective.ExclusiveScanFunc(new(task), &c.runner, elementsOf(data), combine))
}

// StartMinLoc starts a MinLoc; see Handle.
func StartMinLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, false, data, ranks)
}

// StartMaxLoc starts a MaxLoc; see Handle.
func StartMaxLoc[T Real](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, true, data, ranks)
}

// StartGatherV starts a GatherV; see Handle. counts may be used again at
// once.
func StartGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, new(task).GatherV(&c.runner, elementsOf(dst), elementsOf(src), counts, root))
}

// StartAllGatherV starts an AllGatherV; see Handle. counts may be used again at
// once.
func StartAllGatherV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int) *Handle {
	return c.start(ctx, new(task).AllGatherV(&c.runner, elementsOf(dst), elementsOf(src), counts))
}

// StartScatterV starts a ScatterV; see Handle. counts may be used again at
// once.
func StartScatterV[T any](ctx context.Context, c *Comm, dst, src []T, counts []int, root int) *Handle {
	return c.start(ctx, new(task).ScatterV(&c.runner, elementsOf(dst), elementsOf(src), counts, root))
}

// StartReduceScatterV starts a ReduceScatterV; see Handle. counts may be used again at
// once.
func StartReduceScatterV[T Number](ctx context.Context, c *Comm, dst, src []T, counts []int, op Op) *Handle {
	return c.start(ctx, new(task).ReduceScatterV(&c.runner, numbersOf(dst), numbersOf(src), counts, kernel.Op(op)))
}

// StartAllToAllV starts an AllToAllV; see Handle. It returns when all ranks have
// called it and have the counts of each other.
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

// start starts a task, unless its parameters are wrong.
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
	h := &Handle{done: make(chan struct{}), guard: t.Guard}
	c.comm.Go(func() {
		defer close(h.done)
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

// follow returns the Handle of f, which it calls on a goroutine.
func (c *Comm) follow(f func(h *Handle) error) *Handle {
	h := &Handle{done: make(chan struct{})}
	c.comm.Go(func() {
		defer close(h.done)
		h.err = callback.ErrExited // in f, if that does not return
		h.err = f(h)
	})
	return h
}

// enterFlight registers the memory of an operation until flights.Leave, unless it
// overlaps that of another one.
func (c *Comm) enterFlight(f overlap.Flight) (number uint64, err error) {
	number, other := c.flights.Enter(f)
	if other != nil {
		return 0, fmt.Errorf("%w: with those of %s, which is under way", ErrOverlap, other.Name)
	}
	return number, nil
}
