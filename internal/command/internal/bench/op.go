package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// An op is an operation that can be measured.
type op struct {
	name string

	// empty operations move no data and have no size.
	empty bool
	// byRank operations divide the vector among the ranks; their size is that of all blocks.
	byRank bool
	// messages is the number of messages of one run, which take turns: the time is that of one of them. It is 0 for collectives.
	messages int
	// bus returns the ratio of bus to algorithm bandwidth for n ranks: the least part
	// of the vector that the busiest link has to carry.
	bus func(n float64) float64

	// vectors returns the vectors of a rank before and after a run.
	vectors func(p place) vectors
	run     func(ctx context.Context, c *nexar.Comm, dst, src []float32) error
	// onDevice is run for vectors on a device.
	onDevice func(ctx context.Context, c onDevice, dst, src device.Region) error
}

// A place is a rank and the length of its vector.
type place struct {
	rank, ranks int
	count       int // elements of the vector
	oracle      *oracle
}

// block returns the number of elements of each rank if the vector is divided among ranks.
func (p place) block() int { return p.count / p.ranks }

// own returns count elements of this rank's contribution, beginning with element at.
func (p place) own(at, count int) []piece { return []piece{p.oracle.of(p.rank, at, count)} }

// vectors describes the contents of a rank's buffers.
type vectors struct {
	src  []piece // nil: no buffer
	dst  []piece // before the run; nil: dstLen zeros
	want []piece // dst after the run; nil: not checked
	// dstLen is the length of dst if the field dst is nil.
	dstLen int
}

// root is the root of all rooted operations.
const root = 0

// Bus factors. Those of operations that NVIDIA's nccl-tests has are from its
// doc/PERFORMANCE.md, so that bandwidths can be compared.
func single(float64) float64    { return 1 }
func others(n float64) float64  { return (n - 1) / n }
func twoWays(n float64) float64 { return 2 * (n - 1) / n }

// ops returns all operations, in the order of their measurement.
func ops() []op {
	return []op{
		{name: "all_reduce", bus: twoWays, vectors: allReduceVectors, run: runAllReduce, onDevice: deviceAllReduce},
		{name: "broadcast", bus: single, vectors: broadcastVectors, run: runBroadcast, onDevice: deviceBroadcast},
		{name: "reduce", bus: single, vectors: reduceVectors, run: runReduce, onDevice: deviceReduce},
		{name: "all_gather", bus: others, byRank: true, vectors: allGatherVectors, run: runAllGather, onDevice: deviceAllGather},
		{name: "reduce_scatter", bus: others, byRank: true, vectors: reduceScatterVectors, run: runReduceScatter, onDevice: deviceReduceScatter},
		{name: "gather", bus: others, byRank: true, vectors: gatherVectors, run: runGather, onDevice: deviceGather},
		{name: "scatter", bus: others, byRank: true, vectors: scatterVectors, run: runScatter, onDevice: deviceScatter},
		{name: "all_to_all", bus: others, byRank: true, vectors: allToAllVectors, run: runAllToAll, onDevice: deviceAllToAll},
		{name: "scan", bus: single, vectors: scanVectors, run: runScan, onDevice: deviceScan},
		{name: "exclusive_scan", bus: single, vectors: exclusiveScanVectors, run: runExclusiveScan, onDevice: deviceExclusiveScan},
		{name: "barrier", bus: single, empty: true, vectors: noVectors, run: runBarrier},
		{name: "send_recv", bus: single, messages: 2, vectors: pingPongVectors, run: runPingPong, onDevice: devicePingPong},
		{name: "send_stream", bus: single, messages: streamMessages, vectors: streamVectors, run: runStream, onDevice: deviceStream},
	}
}

// Ops are the names of the operations that can be measured.
func Ops() []string {
	var names []string
	for _, o := range ops() {
		names = append(names, o.name)
	}
	return names
}

func find(name string) (*op, error) {
	for _, o := range ops() {
		if o.name == name {
			return &o, nil
		}
	}
	return nil, fmt.Errorf("unknown operation %q: want one of %s", name, strings.Join(Ops(), ", "))
}

func allReduceVectors(p place) vectors {
	return vectors{dst: p.own(0, p.count), want: []piece{p.oracle.sum(0, p.ranks, 0, p.count)}}
}

func runAllReduce(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.AllReduce(ctx, c, dst, nexar.Sum)
}

func broadcastVectors(p place) vectors {
	v := vectors{dstLen: p.count, want: []piece{p.oracle.of(root, 0, p.count)}}
	if p.rank == root {
		v.dst = v.want
	}
	return v
}

func runBroadcast(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.Broadcast(ctx, c, dst, root)
}

func reduceVectors(p place) vectors {
	v := vectors{dst: p.own(0, p.count)}
	if p.rank == root {
		v.want = []piece{p.oracle.sum(0, p.ranks, 0, p.count)}
	}
	return v
}

func runReduce(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.Reduce(ctx, c, dst, nexar.Sum, root)
}

func allGatherVectors(p place) vectors {
	v := vectors{src: p.own(0, p.block()), dstLen: p.count}
	for from := range p.ranks {
		v.want = append(v.want, p.oracle.of(from, 0, p.block()))
	}
	return v
}

func runAllGather(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.AllGather(ctx, c, dst, src)
}

func reduceScatterVectors(p place) vectors {
	return vectors{
		src: p.own(0, p.count), dstLen: p.block(),
		want: []piece{p.oracle.sum(0, p.ranks, p.rank*p.block(), p.block())},
	}
}

func runReduceScatter(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.ReduceScatter(ctx, c, dst, src, nexar.Sum)
}

func gatherVectors(p place) vectors {
	if p.rank == root {
		return allGatherVectors(p)
	}
	return vectors{src: p.own(0, p.block())}
}

func runGather(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.Gather(ctx, c, dst, src, root)
}

func scatterVectors(p place) vectors {
	v := vectors{dstLen: p.block(), want: []piece{p.oracle.of(root, p.rank*p.block(), p.block())}}
	if p.rank == root {
		v.src = p.own(0, p.count)
	}
	return v
}

func runScatter(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.Scatter(ctx, c, dst, src, root)
}

func allToAllVectors(p place) vectors {
	v := vectors{src: p.own(0, p.count), dstLen: p.count}
	for from := range p.ranks {
		v.want = append(v.want, p.oracle.of(from, p.rank*p.block(), p.block()))
	}
	return v
}

func runAllToAll(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return nexar.AllToAll(ctx, c, dst, src)
}

func scanVectors(p place) vectors {
	return vectors{dst: p.own(0, p.count), want: []piece{p.oracle.sum(0, p.rank+1, 0, p.count)}}
}

func runScan(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.Scan(ctx, c, dst, nexar.Sum)
}

func exclusiveScanVectors(p place) vectors {
	return vectors{dst: p.own(0, p.count), want: []piece{p.oracle.sum(0, p.rank, 0, p.count)}}
}

func runExclusiveScan(ctx context.Context, c *nexar.Comm, dst, _ []float32) error {
	return nexar.ExclusiveScan(ctx, c, dst, nexar.Sum)
}

func noVectors(place) vectors { return vectors{} }

func runBarrier(ctx context.Context, c *nexar.Comm, _, _ []float32) error { return c.Barrier(ctx) }

// pingPongVectors: the first and the last rank exchange their vectors.
func pingPongVectors(p place) vectors {
	first, last := 0, p.ranks-1
	if p.rank != first && p.rank != last {
		return vectors{}
	}
	return vectors{
		src: p.own(0, p.count), dstLen: p.count,
		want: []piece{p.oracle.of(first+last-p.rank, 0, p.count)},
	}
}

// runPingPong sends from the first rank to the last and back.
func runPingPong(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return pingPong(c, func(to int) error { return nexar.Send(ctx, c, src, to, pingTag) }, func(from int) error {
		_, err := nexar.Recv(ctx, c, dst, from, pingTag)
		return err
	})
}

const pingTag, answerTag = 1, 2

// streamMessages is the number of messages of a stream.
const streamMessages = 16

// streamVectors: the last rank receives the vector of the first.
func streamVectors(p place) (v vectors) {
	if p.rank == 0 {
		v.src = p.own(0, p.count)
	}
	if p.rank == p.ranks-1 {
		v.dstLen, v.want = p.count, []piece{p.oracle.of(0, 0, p.count)}
	}
	return v
}

// runStream sends from the first rank to the last.
func runStream(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
	return stream(ctx, c, func(to int) error { return nexar.Send(ctx, c, src, to, pingTag) }, func(from int) error {
		_, err := nexar.Recv(ctx, c, dst, from, pingTag)
		return err
	})
}

// stream calls send on the first rank and recv on the last several times. Then the last rank answers.
func stream(ctx context.Context, c *nexar.Comm, send func(to int) error, recv func(from int) error) error {
	first, last := 0, c.Size()-1
	sends := func() error {
		for range streamMessages {
			if err := send(last); err != nil {
				return err
			}
		}
		_, err := nexar.Recv[float32](ctx, c, nil, last, answerTag)
		return err
	}
	recvs := func() error {
		for range streamMessages {
			if err := recv(first); err != nil {
				return err
			}
		}
		return nexar.Send[float32](ctx, c, nil, first, answerTag)
	}
	switch {
	case first == last:
		return together(sends, recvs)
	case c.Rank() == first:
		return sends()
	case c.Rank() == last:
		return recvs()
	}
	return nil
}

// pingPong calls send and recv on the first and the last rank.
func pingPong(c *nexar.Comm, send func(to int) error, recv func(from int) error) error {
	first, last := 0, c.Size()-1
	switch c.Rank() {
	case first:
		if last == first {
			return together(func() error { return send(first) }, func() error { return recv(first) })
		}
		if err := send(last); err != nil {
			return err
		}
		return recv(last)
	case last:
		if err := recv(first); err != nil {
			return err
		}
		return send(first)
	}
	return nil
}

// together runs both at once: a message to oneself may wait for its receiver.
func together(a, b func() error) error {
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { other = a() })
	err := b()
	wg.Wait()
	return errors.Join(err, other)
}
