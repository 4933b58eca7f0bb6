package conformance

import (
	"context"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A pair is a blocking call and the call that starts the same operation, with the same
// buffers.
type pair struct {
	name    string
	call    func(ctx context.Context) error
	start   func(ctx context.Context) *nexar.Handle
	written [][]byte
}

// numbered returns a vector that differs from those of all other ranks.
func numbered(c *nexar.Comm, count int) []int32 {
	x := make([]int32, count)
	for i := range x {
		x[i] = int32(worldtest.Mix(uint64(c.Rank())<<32 | uint64(i)))
	}
	return x
}

// pairs returns all collectives, each with its own buffers for vectors and blocks of
// about count elements.
func pairs(c *nexar.Comm, count int) []pair {
	barrier := pair{name: "barrier", call: c.Barrier, start: c.StartBarrier}
	list := append([]pair{barrier}, vectorPairs(c, count)...)
	list = append(list, blockPairs(c, count)...)
	list = append(list, unevenPairs(c, count)...)
	return append(list, longPairs(c, count)...)
}

// vectorPairs returns the collectives with one buffer.
func vectorPairs(c *nexar.Comm, count int) []pair {
	root := c.Size() / 2
	on := func(name string, call func(ctx context.Context, x []int32) error, start func(ctx context.Context, x []int32) *nexar.Handle) pair {
		x := numbered(c, count)
		return pair{
			name: name, call: func(ctx context.Context) error { return call(ctx, x) },
			start: func(ctx context.Context) *nexar.Handle { return start(ctx, x) }, written: [][]byte{bytesOf(x)},
		}
	}
	type ctx = context.Context
	return []pair{
		on("broadcast",
			func(ctx ctx, x []int32) error { return nexar.Broadcast(ctx, c, x, root) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartBroadcast(ctx, c, x, root) }),
		on("reduce",
			func(ctx ctx, x []int32) error { return nexar.Reduce(ctx, c, x, nexar.Avg, root) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartReduce(ctx, c, x, nexar.Avg, root) }),
		on("reduce_func",
			func(ctx ctx, x []int32) error { return nexar.ReduceFunc(ctx, c, x, composeAll[int32], root) },
			func(ctx ctx, x []int32) *nexar.Handle {
				return nexar.StartReduceFunc(ctx, c, x, composeAll[int32], root)
			}),
		on("all_reduce",
			func(ctx ctx, x []int32) error { return nexar.AllReduce(ctx, c, x, nexar.Avg) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartAllReduce(ctx, c, x, nexar.Avg) }),
		on("all_reduce_func",
			func(ctx ctx, x []int32) error { return nexar.AllReduceFunc(ctx, c, x, composeAll[int32]) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartAllReduceFunc(ctx, c, x, composeAll[int32]) }),
		on("scan",
			func(ctx ctx, x []int32) error { return nexar.Scan(ctx, c, x, nexar.Sum) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartScan(ctx, c, x, nexar.Sum) }),
		on("exclusive_scan",
			func(ctx ctx, x []int32) error { return nexar.ExclusiveScan(ctx, c, x, nexar.Sum) },
			func(ctx ctx, x []int32) *nexar.Handle { return nexar.StartExclusiveScan(ctx, c, x, nexar.Sum) }),
	}
}

// onBlocks returns the pair of two functions with two buffers of these lengths.
func onBlocks(c *nexar.Comm, name string, dstLength, srcLength int, call func(ctx context.Context, dst, src []int32) error,
	start func(ctx context.Context, dst, src []int32) *nexar.Handle,
) pair {
	dst, src := make([]int32, dstLength), numbered(c, srcLength)
	return pair{
		name: name, call: func(ctx context.Context) error { return call(ctx, dst, src) },
		start: func(ctx context.Context) *nexar.Handle { return start(ctx, dst, src) }, written: [][]byte{bytesOf(dst), bytesOf(src)},
	}
}

func blockPairs(c *nexar.Comm, count int) []pair {
	all, root := c.Size()*count, c.Size()/2
	type ctx = context.Context
	return []pair{
		onBlocks(c, "gather", all, count,
			func(ctx ctx, dst, src []int32) error { return nexar.Gather(ctx, c, dst, src, root) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartGather(ctx, c, dst, src, root) }),
		onBlocks(c, "all_gather", all, count,
			func(ctx ctx, dst, src []int32) error { return nexar.AllGather(ctx, c, dst, src) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartAllGather(ctx, c, dst, src) }),
		onBlocks(c, "scatter", count, all,
			func(ctx ctx, dst, src []int32) error { return nexar.Scatter(ctx, c, dst, src, root) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartScatter(ctx, c, dst, src, root) }),
		onBlocks(c, "reduce_scatter", count, all,
			func(ctx ctx, dst, src []int32) error { return nexar.ReduceScatter(ctx, c, dst, src, nexar.Max) },
			func(ctx ctx, dst, src []int32) *nexar.Handle {
				return nexar.StartReduceScatter(ctx, c, dst, src, nexar.Max)
			}),
		onBlocks(c, "all_to_all", all, all,
			func(ctx ctx, dst, src []int32) error { return nexar.AllToAll(ctx, c, dst, src) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartAllToAll(ctx, c, dst, src) }),
	}
}

func unevenPairs(c *nexar.Comm, count int) []pair {
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
			func(ctx ctx, dst, src []int32) error { return nexar.GatherV(ctx, c, dst, src, counts, root) },
			func(ctx ctx, dst, src []int32) *nexar.Handle {
				return nexar.StartGatherV(ctx, c, dst, src, counts, root)
			}),
		onBlocks(c, "all_gather_v", all, own,
			func(ctx ctx, dst, src []int32) error { return nexar.AllGatherV(ctx, c, dst, src, counts) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartAllGatherV(ctx, c, dst, src, counts) }),
		onBlocks(c, "scatter_v", own, all,
			func(ctx ctx, dst, src []int32) error { return nexar.ScatterV(ctx, c, dst, src, counts, root) },
			func(ctx ctx, dst, src []int32) *nexar.Handle {
				return nexar.StartScatterV(ctx, c, dst, src, counts, root)
			}),
		onBlocks(c, "reduce_scatter_v", own, all,
			func(ctx ctx, dst, src []int32) error {
				return nexar.ReduceScatterV(ctx, c, dst, src, counts, nexar.Sum)
			},
			func(ctx ctx, dst, src []int32) *nexar.Handle {
				return nexar.StartReduceScatterV(ctx, c, dst, src, counts, nexar.Sum)
			}),
		onBlocks(c, "all_to_all_v", sum(in), sum(out),
			func(ctx ctx, dst, src []int32) error { return nexar.AllToAllV(ctx, c, dst, src, in, out) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartAllToAllV(ctx, c, dst, src, in, out) }),
		onBlocks(c, "min_loc", count, count,
			func(ctx ctx, dst, src []int32) error { return nexar.MinLoc(ctx, c, src, dst) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartMinLoc(ctx, c, src, dst) }),
		onBlocks(c, "max_loc", count, count,
			func(ctx ctx, dst, src []int32) error { return nexar.MaxLoc(ctx, c, src, dst) },
			func(ctx ctx, dst, src []int32) *nexar.Handle { return nexar.StartMaxLoc(ctx, c, src, dst) }),
	}
}

// longPairs returns the calls that may take several collectives.
func longPairs(c *nexar.Comm, count int) []pair {
	vectors := [][]int32{numbered(c, count), nil, numbered(c, 7), numbered(c, 3*count)}
	buckets := pair{
		name: "all_reduce_buckets",
		call: func(ctx context.Context) error { return nexar.AllReduceBuckets(ctx, c, vectors, nexar.Max) },
		start: func(ctx context.Context) *nexar.Handle {
			return nexar.StartAllReduceBuckets(ctx, c, vectors, nexar.Max)
		},
		written: [][]byte{bytesOf(vectors[0]), bytesOf(vectors[2]), bytesOf(vectors[3])},
	}
	x, topK := make([]float32, count), &compress.TopK{Ratio: 0.1}
	for i, v := range numbered(c, count) {
		x[i] = float32(v)
	}
	compressed := pair{
		name: "all_reduce_compressed",
		call: func(ctx context.Context) error { return nexar.AllReduceCompressed(ctx, c, x, nexar.Sum, topK) },
		start: func(ctx context.Context) *nexar.Handle {
			return nexar.StartAllReduceCompressed(ctx, c, x, nexar.Sum, topK)
		},
		written: [][]byte{bytesOf(x)},
	}
	return []pair{buckets, compressed}
}
