package nccl

import (
	"context"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// A Batch is a list of collectives that a Group performs together, as a group call of NCCL: their parts inside
// hosts begin at the same time, and the stream is awaited once. Many short vectors take less time so.
//
//	batch := group.Batch()
//	for _, gradient := range gradients {
//		batch.AllReduce(device.Float32, gradient, nexar.Sum)
//	}
//	err := batch.Run(ctx)
//
// All ranks add the same calls in the same order. No region that a call of the Batch writes may overlap one of
// another call; this is not checked. Types and operations that the Group leaves to [nexar.DeviceComm] may be mixed
// with the others.
type Batch struct {
	g     *Group
	calls []*call
}

// Batch returns an empty Batch.
func (g *Group) Batch() *Batch { return &Batch{g: g} }

// AllReduce adds a [Group.AllReduce].
func (b *Batch) AllReduce(t device.Type, data device.Region, op nexar.Op) {
	b.calls = append(b.calls, b.g.allReduce(t, data, op))
}

// Broadcast adds a [Group.Broadcast].
func (b *Batch) Broadcast(t device.Type, data device.Region, root int) {
	b.calls = append(b.calls, b.g.broadcast(t, data, root))
}

// Reduce adds a [Group.Reduce].
func (b *Batch) Reduce(t device.Type, data device.Region, op nexar.Op, root int) {
	b.calls = append(b.calls, b.g.reduce(t, data, op, root))
}

// AllGather adds a [Group.AllGather].
func (b *Batch) AllGather(t device.Type, dst, src device.Region) {
	b.calls = append(b.calls, b.g.allGather(t, dst, src))
}

// ReduceScatter adds a [Group.ReduceScatter].
func (b *Batch) ReduceScatter(t device.Type, dst, src device.Region, op nexar.Op) {
	b.calls = append(b.calls, b.g.reduceScatter(t, dst, src, op))
}

// AllToAll adds a [Group.AllToAll].
func (b *Batch) AllToAll(t device.Type, dst, src device.Region) {
	b.calls = append(b.calls, b.g.allToAll(t, dst, src))
}

// Run performs the calls, and empties the Batch. If an argument of a call is invalid, it performs none, and returns the error of
// the first such call. After another error the results of all calls are undefined.
func (b *Batch) Run(ctx context.Context) error {
	calls := b.calls
	b.calls = nil
	return b.g.run(ctx, "batch", calls...)
}
