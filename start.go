package nexar

import (
	"context"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
)

// StartBarrier begins a Barrier.
func (c *Comm) StartBarrier(ctx context.Context) *Handle {
	return c.start(ctx, &task{Task: selector.Task{Kind: plan.Barrier, Elem: 1}}, nil)
}

// StartBroadcast begins a Broadcast; see Handle.
func StartBroadcast[T any](ctx context.Context, c *Comm, data []T, root int) *Handle {
	var t task
	return c.start(ctx, &t, broadcastTask(&t, c, elementsOf(data), root))
}

// StartReduce begins a Reduce; see Handle.
func StartReduce[T Number](ctx context.Context, c *Comm, data []T, op Op, root int) *Handle {
	var t task
	return c.start(ctx, &t, reduceTask(&t, c, elementsOf(data), op, root))
}

// StartReduceFunc begins a ReduceFunc; see Handle.
func StartReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T), root int) *Handle {
	var t task
	return c.start(ctx, &t, reduceFuncTask(&t, c, data, combine, root))
}

// StartAllReduce begins an AllReduce; see Handle.
func StartAllReduce[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	var t task
	return c.start(ctx, &t, allReduceTask(&t, c, elementsOf(data), op))
}

// StartAllReduceFunc begins an AllReduceFunc; see Handle.
func StartAllReduceFunc[T Number](ctx context.Context, c *Comm, data []T, combine func(dst, src []T)) *Handle {
	var t task
	return c.start(ctx, &t, allReduceFuncTask(&t, c, data, combine))
}

// StartGather begins a Gather; see Handle.
func StartGather[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	var t task
	return c.start(ctx, &t, gatherTask(&t, c, elementsOf(dst), elementsOf(src), root))
}

// StartAllGather begins an AllGather; see Handle.
func StartAllGather[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	var t task
	return c.start(ctx, &t, allGatherTask(&t, c, elementsOf(dst), elementsOf(src)))
}

// StartScatter begins a Scatter; see Handle.
func StartScatter[T any](ctx context.Context, c *Comm, dst, src []T, root int) *Handle {
	var t task
	return c.start(ctx, &t, scatterTask(&t, c, elementsOf(dst), elementsOf(src), root))
}

// StartReduceScatter begins a ReduceScatter; see Handle.
func StartReduceScatter[T Number](ctx context.Context, c *Comm, dst, src []T, op Op) *Handle {
	var t task
	return c.start(ctx, &t, reduceScatterTask(&t, c, elementsOf(dst), elementsOf(src), op))
}

// StartAllToAll begins an AllToAll; see Handle.
func StartAllToAll[T any](ctx context.Context, c *Comm, dst, src []T) *Handle {
	var t task
	return c.start(ctx, &t, allToAllTask(&t, c, elementsOf(dst), elementsOf(src)))
}

// StartScan begins a Scan; see Handle.
func StartScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	var t task
	return c.start(ctx, &t, scanTask(&t, c, elementsOf(data), op))
}

// StartExclusiveScan begins an ExclusiveScan; see Handle.
func StartExclusiveScan[T Number](ctx context.Context, c *Comm, data []T, op Op) *Handle {
	var t task
	return c.start(ctx, &t, exclusiveScanTask(&t, c, elementsOf(data), op))
}
