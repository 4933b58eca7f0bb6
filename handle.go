package nexar

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/overlap"
)

// A Handle is an operation under way: what a function whose name begins with
// Start returns. StartAllToAllV and StartAllReduceCompressed return when all ranks
// have called them, StartAllReduceBuckets may wait for the first of many buckets;
// the others wait for no other rank.
//
// Operations are carried out in the order of the Start calls and of those that
// block, which has to be the same on all ranks; many can be under way at once,
// and they end in any order. The buffers of an operation belong to it until it
// has ended: what it writes must not be touched, and what it reads not changed.
// Buffers of operations under way on one communicator must not overlap, unless
// all of them only read there; a Start whose buffers do is an ErrOverlap, as
// long as no more than a few dozen operations are under way.
//
// The context of a Start is that of the whole operation: if it ends first, the
// operation fails as the call that blocks does. A Handle that nobody waits for
// does no harm; its operation goes on.
//
// A Handle that no Start has returned, such as new(Handle), stands for no
// operation: it is done, and Wait returns an error that says so.
type Handle struct {
	done   chan struct{}
	err    error
	status Status
	guard  *callback.Guard
}

// Wait waits for the end of the operation and returns its error. It may be
// called by several goroutines, more than once, always with the same result.
// If a function that combines has panicked, so does Wait.
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

// Status is what a StartRecv or StartExchange has received, once that has ended
// well.
func (h *Handle) Status() Status {
	<-h.Done()
	return h.status
}

// WaitAll waits for all handles, and returns their errors, joined. It waits for
// the last even if the first has failed, so that all buffers can be used again.
// Nil handles are passed over.
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

// start begins a task, unless there is an error in its parameters.
func (c *Comm) start(ctx context.Context, t *task, bad error) *Handle {
	var id uint64
	if bad == nil {
		id, bad = c.enterFlight(t.flight())
	}
	op, err := c.begin(ctx, t, bad)
	if err != nil {
		c.flights.Leave(id)
		return ended(err)
	}
	h := &Handle{done: make(chan struct{}), guard: t.guard}
	c.comm.Go(func() {
		defer close(h.done)
		defer c.flights.Leave(id)
		h.err = callback.ErrExited // in end, if that does not return
		h.err = c.end(ctx, t, op)
	})
	return h
}

// ended is a Handle of what has not begun.
func ended(err error) *Handle {
	h := &Handle{done: make(chan struct{}), err: err}
	close(h.done)
	return h
}

// follow is a Handle of what f does, which begins now.
func (c *Comm) follow(f func(h *Handle) error) *Handle {
	h := &Handle{done: make(chan struct{})}
	c.comm.Go(func() {
		defer close(h.done)
		h.err = callback.ErrExited // in f, if that does not return
		h.err = f(h)
	})
	return h
}

// flight is the memory of a task.
func (t *task) flight() overlap.Flight {
	if t.reads {
		return overlap.Flight{Name: t.name(), Read: t.data}
	}
	return overlap.Flight{Name: t.name(), Write: t.data, Read: t.input}
}

// enterFlight notes the memory of an operation that begins, until flights.Leave,
// unless it shares memory with another.
func (c *Comm) enterFlight(f overlap.Flight) (number uint64, err error) {
	number, other := c.flights.Enter(f)
	if other != nil {
		return 0, fmt.Errorf("%w: with those of %s, which is under way", ErrOverlap, other.Name)
	}
	return number, nil
}
