package nexar

import (
	"context"

	"github.com/nexar-go/nexar/compress"
)

// A pair is a call that blocks and one that does not, with the same buffers.
type pair struct {
	name    string
	call    func(ctx context.Context) error
	start   func(ctx context.Context) *Handle
	written [][]byte
}

// numbered is a vector that no other rank has.
func numbered(c *Comm, count int) []int32 {
	x := make([]int32, count)
	for i := range x {
		x[i] = int32(mix(uint64(c.Rank())<<32 | uint64(i)))
	}
	return x
}

// pairs are all collectives that there are, with buffers of their own for
// vectors and blocks of about count elements.
func pairs(c *Comm, count int) []pair {
	barrier := pair{name: "barrier", call: c.Barrier, start: c.StartBarrier}
	list := append([]pair{barrier}, vectorPairs(c, count)...)
	list = append(list, blockPairs(c, count)...)
	list = append(list, unevenPairs(c, count)...)
	return append(list, longPairs(c, count)...)
}

// vectorPairs are those that have one buffer.
func vectorPairs(c *Comm, count int) []pair {
	root := c.Size() / 2
	on := func(name string, call func(ctx context.Context, x []int32) error, start func(ctx context.Context, x []int32) *Handle) pair {
		x := numbered(c, count)
		return pair{
			name: name, call: func(ctx context.Context) error { return call(ctx, x) },
			start: func(ctx context.Context) *Handle { return start(ctx, x) }, written: [][]byte{bytesOf(x)},
		}
	}
	type ctx = context.Context
	return []pair{
		on("broadcast",
			func(ctx ctx, x []int32) error { return Broadcast(ctx, c, x, root) },
			func(ctx ctx, x []int32) *Handle { return StartBroadcast(ctx, c, x, root) }),
		on("reduce",
			func(ctx ctx, x []int32) error { return Reduce(ctx, c, x, Avg, root) },
			func(ctx ctx, x []int32) *Handle { return StartReduce(ctx, c, x, Avg, root) }),
		on("reduce_func",
			func(ctx ctx, x []int32) error { return ReduceFunc(ctx, c, x, composeAll[int32], root) },
			func(ctx ctx, x []int32) *Handle { return StartReduceFunc(ctx, c, x, composeAll[int32], root) }),
		on("all_reduce",
			func(ctx ctx, x []int32) error { return AllReduce(ctx, c, x, Avg) },
			func(ctx ctx, x []int32) *Handle { return StartAllReduce(ctx, c, x, Avg) }),
		on("all_reduce_func",
			func(ctx ctx, x []int32) error { return AllReduceFunc(ctx, c, x, composeAll[int32]) },
			func(ctx ctx, x []int32) *Handle { return StartAllReduceFunc(ctx, c, x, composeAll[int32]) }),
		on("scan",
			func(ctx ctx, x []int32) error { return Scan(ctx, c, x, Sum) },
			func(ctx ctx, x []int32) *Handle { return StartScan(ctx, c, x, Sum) }),
		on("exclusive_scan",
			func(ctx ctx, x []int32) error { return ExclusiveScan(ctx, c, x, Sum) },
			func(ctx ctx, x []int32) *Handle { return StartExclusiveScan(ctx, c, x, Sum) }),
	}
}

// onBlocks is a pair of functions of two buffers, of these lengths.
func onBlocks(c *Comm, name string, dstLength, srcLength int, call func(ctx context.Context, dst, src []int32) error,
	start func(ctx context.Context, dst, src []int32) *Handle,
) pair {
	dst, src := make([]int32, dstLength), numbered(c, srcLength)
	return pair{
		name: name, call: func(ctx context.Context) error { return call(ctx, dst, src) },
		start: func(ctx context.Context) *Handle { return start(ctx, dst, src) }, written: [][]byte{bytesOf(dst), bytesOf(src)},
	}
}

func blockPairs(c *Comm, count int) []pair {
	all, root := c.Size()*count, c.Size()/2
	type ctx = context.Context
	return []pair{
		onBlocks(c, "gather", all, count,
			func(ctx ctx, dst, src []int32) error { return Gather(ctx, c, dst, src, root) },
			func(ctx ctx, dst, src []int32) *Handle { return StartGather(ctx, c, dst, src, root) }),
		onBlocks(c, "all_gather", all, count,
			func(ctx ctx, dst, src []int32) error { return AllGather(ctx, c, dst, src) },
			func(ctx ctx, dst, src []int32) *Handle { return StartAllGather(ctx, c, dst, src) }),
		onBlocks(c, "scatter", count, all,
			func(ctx ctx, dst, src []int32) error { return Scatter(ctx, c, dst, src, root) },
			func(ctx ctx, dst, src []int32) *Handle { return StartScatter(ctx, c, dst, src, root) }),
		onBlocks(c, "reduce_scatter", count, all,
			func(ctx ctx, dst, src []int32) error { return ReduceScatter(ctx, c, dst, src, Max) },
			func(ctx ctx, dst, src []int32) *Handle { return StartReduceScatter(ctx, c, dst, src, Max) }),
		onBlocks(c, "all_to_all", all, all,
			func(ctx ctx, dst, src []int32) error { return AllToAll(ctx, c, dst, src) },
			func(ctx ctx, dst, src []int32) *Handle { return StartAllToAll(ctx, c, dst, src) }),
	}
}

func unevenPairs(c *Comm, count int) []pair {
	counts := make([]int, c.Size())
	for r := range counts {
		counts[r] = r % 3 * count
	}
	all, own, root := sum(counts), counts[c.Rank()], c.Size()/2
	in, out := make([]int, c.Size()), make([]int, c.Size())
	for r := range counts {
		in[r], out[r] = (r+2*c.Rank())%4*count, (c.Rank()+2*r)%4*count
	}
	type ctx = context.Context
	return []pair{
		onBlocks(c, "gather_v", all, own,
			func(ctx ctx, dst, src []int32) error { return GatherV(ctx, c, dst, src, counts, root) },
			func(ctx ctx, dst, src []int32) *Handle { return StartGatherV(ctx, c, dst, src, counts, root) }),
		onBlocks(c, "all_gather_v", all, own,
			func(ctx ctx, dst, src []int32) error { return AllGatherV(ctx, c, dst, src, counts) },
			func(ctx ctx, dst, src []int32) *Handle { return StartAllGatherV(ctx, c, dst, src, counts) }),
		onBlocks(c, "scatter_v", own, all,
			func(ctx ctx, dst, src []int32) error { return ScatterV(ctx, c, dst, src, counts, root) },
			func(ctx ctx, dst, src []int32) *Handle { return StartScatterV(ctx, c, dst, src, counts, root) }),
		onBlocks(c, "reduce_scatter_v", own, all,
			func(ctx ctx, dst, src []int32) error { return ReduceScatterV(ctx, c, dst, src, counts, Sum) },
			func(ctx ctx, dst, src []int32) *Handle { return StartReduceScatterV(ctx, c, dst, src, counts, Sum) }),
		onBlocks(c, "all_to_all_v", sum(in), sum(out),
			func(ctx ctx, dst, src []int32) error { return AllToAllV(ctx, c, dst, src, in, out) },
			func(ctx ctx, dst, src []int32) *Handle { return StartAllToAllV(ctx, c, dst, src, in, out) }),
		onBlocks(c, "min_loc", count, count,
			func(ctx ctx, dst, src []int32) error { return MinLoc(ctx, c, src, dst) },
			func(ctx ctx, dst, src []int32) *Handle { return StartMinLoc(ctx, c, src, dst) }),
		onBlocks(c, "max_loc", count, count,
			func(ctx ctx, dst, src []int32) error { return MaxLoc(ctx, c, src, dst) },
			func(ctx ctx, dst, src []int32) *Handle { return StartMaxLoc(ctx, c, src, dst) }),
	}
}

// longPairs are those that may take several collectives.
func longPairs(c *Comm, count int) []pair {
	vectors := [][]int32{numbered(c, count), nil, numbered(c, 7), numbered(c, 3*count)}
	buckets := pair{
		name:    "all_reduce_buckets",
		call:    func(ctx context.Context) error { return AllReduceBuckets(ctx, c, vectors, Max) },
		start:   func(ctx context.Context) *Handle { return StartAllReduceBuckets(ctx, c, vectors, Max) },
		written: [][]byte{bytesOf(vectors[0]), bytesOf(vectors[2]), bytesOf(vectors[3])},
	}
	x, topK := make([]float32, count), &compress.TopK{Ratio: 0.1}
	for i, v := range numbered(c, count) {
		x[i] = float32(v)
	}
	compressed := pair{
		name:    "all_reduce_compressed",
		call:    func(ctx context.Context) error { return AllReduceCompressed(ctx, c, x, Sum, topK) },
		start:   func(ctx context.Context) *Handle { return StartAllReduceCompressed(ctx, c, x, Sum, topK) },
		written: [][]byte{bytesOf(x)},
	}
	return []pair{buckets, compressed}
}
