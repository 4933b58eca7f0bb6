package nexar

import (
	"context"
	"fmt"
	"math"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
)

// AllReduceOne is [AllReduce] of one number: it returns x of all ranks, combined, with the
// same bits on every rank. After an error the result is zero.
func AllReduceOne[T Number](ctx context.Context, c *Comm, x T, op Op) (T, error) {
	data := []T{x}
	if err := AllReduce(ctx, c, data, op); err != nil {
		return *new(T), err
	}
	return data[0], nil
}

// BroadcastOne is [Broadcast] of one element: it returns x of root. The values that other ranks
// pass do not matter. After an error the result is zero.
func BroadcastOne[T any](ctx context.Context, c *Comm, x T, root int) (T, error) {
	data := []T{x}
	if err := Broadcast(ctx, c, data, root); err != nil {
		return *new(T), err
	}
	return data[0], nil
}

// AllGatherOne is [AllGather] of one element of each rank. It returns the elements of all ranks,
// indexed by rank; after an error the result is nil.
func AllGatherOne[T any](ctx context.Context, c *Comm, x T) ([]T, error) {
	all := make([]T, c.Size())
	if err := AllGather(ctx, c, all, []T{x}); err != nil {
		return nil, err
	}
	return all, nil
}

// Float contains the floating-point element types. For a floating-point type of 16 or 8 bits of another
// package, use [View].
type Float interface {
	~float32 | ~float64 | Float16 | BFloat16 | Float8E4M3 | Float8E5M2
}

// AllReduceMean replaces data of every rank by the mean of data of all ranks, element by element,
// weighted by the weights of the ranks: Σ weight·data / Σ weight. All data have the same length,
// and the result has the same bits on every rank. With the number of samples of each rank as its
// weight it is the mean over all samples, where [AllReduce] with [Avg] counts each rank once.
//
// Data of a rank with the weight 0 is ignored, NaNs included. If a weight is negative, infinite
// or NaN, all are 0, or their sum exceeds float64, all ranks get an [ErrInvalidWeight], data is
// unchanged and the communicator can still be used. After other errors the content of data is undefined.
//
// Each rank multiplies its data by its share of the weights, in float64 and rounded once to T,
// before an AllReduce with [Sum]: no product exceeds the range of T. The ranks exchange their
// weights first, by a collective of its own.
func AllReduceMean[T Float](ctx context.Context, c *Comm, data []T, weight float64) error {
	total := []float64{weight}
	if !(weight >= 0) || math.IsInf(weight, 1) {
		total[0] = math.NaN() // so that the sum is NaN on all ranks
	}
	t := new(task).OnVector(&c.runner, plan.AllReduce, elementsOf(total), kernel.Sum, 0)
	t.Op = collective.MeanOp
	if err := c.run(ctx, t); err != nil {
		return err
	}
	if !(total[0] > 0) || math.IsInf(total[0], 1) {
		return opError(collective.MeanName, fmt.Errorf("%w: that of rank %d is %v; all weights must be at least 0, and their sum finite and more than 0", ErrInvalidWeight, c.Rank(), weight))
	}
	t = new(task).OnVector(&c.runner, plan.AllReduce, elementsOf(data), kernel.Sum, 0)
	t.Op = collective.MeanOp
	t.Before = func() { kernel.Scale(kernel.Type(t.Type), t.Data, weight/total[0]) }
	return c.run(ctx, t)
}
