package nexar

import (
	"context"

	"github.com/nexar-go/nexar/internal/plan"
)

// StartBarrier begins a Barrier.
func (c *Comm) StartBarrier(ctx context.Context) *Handle {
	return c.start(ctx, task{kind: plan.Barrier}, nil)
}

// StartBroadcast begins a Broadcast; see Handle.
func StartBroadcast[T any](ctx context.Context, c *Comm, data []T, root int) *Handle {
	t, err := broadcastTask(c, elementsOf(data), root)
	return c.start(ctx, t, err)
}

// StartReduce begins a Reduce; see Handle.
func StartReduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) *Handle {
	t, err := reduceTask(c, elementsOf(data), op, root)
	return c.start(ctx, t, err)
}

// StartReduceFunc begins a ReduceFunc; see Handle.
func StartReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) *Handle {
	t, err := reduceFuncTask(c, data, combine, root)
	return c.start(ctx, t, err)
}

// StartAllReduce begins an AllReduce; see Handle.
func StartAllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	t, err := allReduceTask(c, elementsOf(data), op)
	return c.start(ctx, t, err)
}

// StartAllReduceFunc begins an AllReduceFunc; see Handle.
func StartAllReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	t, err := allReduceFuncTask(c, data, combine)
	return c.start(ctx, t, err)
}

// StartGather begins a Gather; see Handle.
func StartGather[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	t, err := gatherTask(c, elementsOf(dst), elementsOf(src), root)
	return c.start(ctx, t, err)
}

// StartAllGather begins an AllGather; see Handle.
func StartAllGather[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	t, err := allGatherTask(c, elementsOf(dst), elementsOf(src))
	return c.start(ctx, t, err)
}

// StartScatter begins a Scatter; see Handle.
func StartScatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	t, err := scatterTask(c, elementsOf(dst), elementsOf(src), root)
	return c.start(ctx, t, err)
}

// StartReduceScatter begins a ReduceScatter; see Handle.
func StartReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) *Handle {
	t, err := reduceScatterTask(c, elementsOf(dst), elementsOf(src), op)
	return c.start(ctx, t, err)
}

// StartAllToAll begins an AllToAll; see Handle.
func StartAllToAll[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	t, err := allToAllTask(c, elementsOf(dst), elementsOf(src))
	return c.start(ctx, t, err)
}

// StartScan begins a Scan; see Handle.
func StartScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	t, err := scanTask(c, elementsOf(data), op)
	return c.start(ctx, t, err)
}

// StartExclusiveScan begins an ExclusiveScan; see Handle.
func StartExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	t, err := exclusiveScanTask(c, elementsOf(data), op)
	return c.start(ctx, t, err)
}
