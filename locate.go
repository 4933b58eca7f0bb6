package nexar

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/nexar-go/nexar/internal/plan"
)

// MinLoc leaves in data of every rank the smallest of all ranks' elements, for
// each place, and in ranks which rank it is of: the lowest, if several have it.
// A NaN counts as smaller than all numbers. All data have the same length, and
// ranks the same as data; what ranks holds before does not matter. The result
// has the same bits on all ranks.
func MinLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	t, err := locateTask(c, "min_loc", Min, data, ranks)
	return c.run(ctx, t, err)
}

// MaxLoc is MinLoc for the largest. A NaN counts as larger than all numbers.
func MaxLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) error {
	t, err := locateTask(c, "max_loc", Max, data, ranks)
	return c.run(ctx, t, err)
}

// StartMinLoc begins a MinLoc; see Handle.
func StartMinLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	t, err := locateTask(c, "min_loc", Min, data, ranks)
	return c.start(ctx, t, err)
}

// StartMaxLoc begins a MaxLoc; see Handle.
func StartMaxLoc[T Number](ctx context.Context, c *Comm, data []T, ranks []int32) *Handle {
	t, err := locateTask(c, "max_loc", Max, data, ranks)
	return c.start(ctx, t, err)
}

// A located element is one of a rank.
type located[T Number] struct {
	value T
	rank  int32
}

// locateTask is an all-reduce of data with the ranks beside them.
func locateTask[T Number](c *Comm, label string, op Op, data []T, ranks []int32) (task, error) {
	pairs := make([]located[T], len(data))
	for i, v := range data {
		pairs[i] = located[T]{v, int32(c.rank)}
	}
	t, err := vector(plan.AllReduce, elementsOf(pairs))
	// The elements are whole pairs, which must not be cut.
	t.label, t.op, t.count, t.elem = label, uint8(op), len(pairs), t.elem*t.count/max(1, len(pairs))
	if err == nil {
		err = checkLength("ranks", len(ranks), len(data))
	}
	if err == nil && overlap(bytesOf(data), bytesOf(ranks)) {
		err = fmt.Errorf("%w: data and ranks share memory", ErrOverlap)
	}
	order := orderOf[T]()
	t.reduce = reducerOf(func(dst, src []located[T]) {
		for i, s := range src {
			d := &dst[i]
			c := order(s.value, d.value, op)
			if c < 0 || c == 0 && s.rank < d.rank {
				*d = s
			}
		}
	})
	t.after = func() {
		for i, p := range pairs {
			data[i], ranks[i] = p.value, p.rank
		}
	}
	return t, err
}

// orderOf is a function that compares elements, for Min or Max: it is less than
// 0 if a is the result of both, and 0 if they are the same.
func orderOf[T Number]() func(a, b T, op Op) int {
	var order any
	switch any((*T)(nil)).(type) {
	case *float32:
		order = func(a, b float32, op Op) int { return orderFloats(float64(a), float64(b), op) }
	case *float64:
		order = orderFloats
	case *Float16:
		order = func(a, b Float16, op Op) int { return orderFloats(float64(a.Float32()), float64(b.Float32()), op) }
	case *BFloat16:
		order = func(a, b BFloat16, op Op) int { return orderFloats(float64(a.Float32()), float64(b.Float32()), op) }
	default:
		return orderInts[T]
	}
	return order.(func(a, b T, op Op) int)
}

func orderInts[T Number](a, b T, op Op) int {
	if op == Max {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// orderFloats has NaN before all numbers, for both ops, and -0 < +0.
func orderFloats(a, b float64, op Op) int {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return cmp.Compare(a, b) // which has NaN first
	case a == 0 && b == 0:
		a, b = math.Copysign(1, a), math.Copysign(1, b)
	}
	return orderInts(a, b, op)
}
