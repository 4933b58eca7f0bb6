package main

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
)

// An op is an operation to measure.
type op struct {
	name string
	// empty is set for an operation without data. It is measured once, with size 0.
	empty bool
	// oneWay is set if a run is a round trip. Half of its time counts.
	oneWay  bool
	vectors func(p place) vectors
	run     func(ctx context.Context, c *nexar.Comm, dst, src []float32) error
}

// A place is a rank, the number of ranks, and the number of elements of the vector.
type place struct{ rank, ranks, count int }

// block returns the number of elements of a block. A vector has one block for each rank.
func (p place) block() int { return max(p.count/p.ranks, 1) }

func (p place) talks() bool { return p.rank == 0 || p.rank == p.ranks-1 }

// vectors has the lengths of the vectors, and the expected contents of dst.
type vectors struct {
	src, dst int
	inPlace  bool                // dst is also this rank's input
	want     func(i int) float32 // nil if the result is not checked
}

// value returns element i of the input of a rank. Sums over ranks are exact. The period is a prime
// number, so that blocks of a power of two elements differ.
func value(rank, i int) float32 { return float32(1 + (i+17*rank)%251) }

func sum(ranks, i int) (s float32) {
	for r := range ranks {
		s += value(r, i)
	}
	return s
}

// ops returns the operations of all programs.
func ops() []op {
	return []op{
		{name: "all_reduce", vectors: allReduceVectors, run: runAllReduce},
		{name: "all_gather", vectors: allGatherVectors, run: runAllGather},
		{name: "reduce_scatter", vectors: reduceScatterVectors, run: runReduceScatter},
		{name: "broadcast", vectors: broadcastVectors, run: runBroadcast},
		{name: "all_to_all", vectors: allToAllVectors, run: runAllToAll},
		{name: "barrier", empty: true, vectors: noVectors, run: runBarrier},
		{name: "send_recv", oneWay: true, vectors: sendRecvVectors, run: runSendRecv},
	}
}

func find(name string) (op, error) {
	for _, o := range ops() {
		if o.name == name {
			return o, nil
		}
	}
	return op{}, fmt.Errorf("-ops: unknown operation %q", name)
}

func allReduceVectors(p place) vectors {
	return vectors{dst: p.count, inPlace: true, want: func(i int) float32 { return sum(p.ranks, i) }}
}

func runAllReduce(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.AllReduce(ctx, c, dst, nexar.Sum)
}

func allGatherVectors(p place) vectors {
	each := p.block()
	return vectors{src: each, dst: each * p.ranks, want: func(i int) float32 { return value(i/each, i%each) }}
}

func runAllGather(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.AllGather(ctx, c, dst, src)
}

func reduceScatterVectors(p place) vectors {
	each := p.block()
	return vectors{src: each * p.ranks, dst: each, want: func(i int) float32 { return sum(p.ranks, p.rank*each+i) }}
}

func runReduceScatter(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.ReduceScatter(ctx, c, dst, src, nexar.Sum)
}

func broadcastVectors(p place) vectors {
	return vectors{dst: p.count, inPlace: p.rank == 0, want: func(i int) float32 { return value(0, i) }}
}

func runBroadcast(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.Broadcast(ctx, c, dst, 0)
}

func allToAllVectors(p place) vectors {
	each := p.block()
	return vectors{src: each * p.ranks, dst: each * p.ranks, want: func(i int) float32 {
		return value(i/each, p.rank*each+i%each)
	}}
}

func runAllToAll(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.AllToAll(ctx, c, dst, src)
}

func noVectors(place) vectors { return vectors{} }

func runBarrier(ctx context.Context, c *nexar.Comm, _, _ []float32) error { return c.Barrier(ctx) }

// sendRecvVectors returns the vectors that the first and the last rank exchange.
func sendRecvVectors(p place) vectors {
	if !p.talks() {
		return vectors{}
	}
	return vectors{src: p.count, dst: p.count, want: func(i int) float32 { return value(p.ranks-1-p.rank, i) }}
}

func runSendRecv(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	const tag = 1
	last := c.Size() - 1
	switch c.Rank() {
	case 0:
		if err := nexar.Send(ctx, c, src, last, tag); err != nil {
			return err
		}
		_, err := nexar.Recv(ctx, c, dst, last, tag)
		return err
	case last:
		if _, err := nexar.Recv(ctx, c, dst, 0, tag); err != nil {
			return err
		}
		return nexar.Send(ctx, c, src, 0, tag)
	}
	return nil
}
