package nexar

import (
	"cmp"
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// MinLoc leaves in data of every rank the smallest of all ranks' elements, for
// each place, and in ranks which rank it is of: the lowest, if several have it.
// A NaN counts as smaller than all numbers. All data have the same length, and
// ranks the same as data; what ranks holds before does not matter. The result
// has the same bits on all ranks.
func MinLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	var t task
	return c.run(ctx, &t, locateTask(&t, c, Min, data, ranks))
}

// MaxLoc is MinLoc for the largest. A NaN counts as larger than all numbers.
func MaxLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	var t task
	return c.run(ctx, &t, locateTask(&t, c, Max, data, ranks))
}

// StartMinLoc begins a MinLoc; see Handle.
func StartMinLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, Min, data, ranks)
}

// StartMaxLoc begins a MaxLoc; see Handle.
func StartMaxLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	return startLocate(ctx, c, Max, data, ranks)
}

// startLocate begins a task, which has a copy of data under way.
func startLocate[T Number](ctx context.Context, c *Comm, op Op, data []T, ranks []int32) *Handle {
	var t task
	err := locateTask(&t, c, op, data, ranks)
	release, busy := c.hold(t.label, bytesOf(data), bytesOf(ranks))
	h := c.start(ctx, &t, cmp.Or(err, busy))
	return c.follow(func(*Handle) error {
		defer release()
		return h.Wait()
	})
}

// hold adds memory that is written when an operation ends to that of those under
// way, until it is released.
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

// The names of the calls in errors.
const (
	minLocName = "min_loc"
	maxLocName = "max_loc"
)

// locateTask is an all-reduce of data with the ranks beside them.
func locateTask[T Number](t *task, c *Comm, op Op, data []T, ranks []int32) error {
	pairs := make([]kernel.Located[T], len(data))
	for i, v := range data {
		pairs[i] = kernel.Located[T]{Value: v, Rank: int32(c.impl.Rank)}
	}
	*t = task{
		Task: selector.Task{
			Kind: plan.AllReduce, Op: minLocOp,
			// Whole pairs are counted, which must not be cut, and the type is said to
			// be that of data, which tells those of one from those of another.
			Type: elementsOf(data).of.typ, Count: len(pairs), Elem: int(unsafe.Sizeof(kernel.Located[T]{})),
		},
		label: minLocName, data: bytesOf(pairs),
	}
	if op == Max {
		t.label, t.Op = maxLocName, maxLocOp
	}
	err := checkLength("ranks", len(ranks), len(data))
	if err == nil && overlap.Two(bytesOf(data), bytesOf(ranks)) {
		err = fmt.Errorf("%w: data and ranks share memory", ErrOverlap)
	}
	t.reduce = kernel.Locate[T](kernel.Type(t.Type), op == Max)
	t.after = func() {
		for i, p := range pairs {
			data[i], ranks[i] = p.Value, p.Rank
		}
	}
	return err
}
