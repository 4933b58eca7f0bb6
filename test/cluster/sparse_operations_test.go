package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
)

// checkFurther makes the calls that [checkWorld] does not make: collectives with blocks of different lengths, compressed
// all-reduces, remote calls, Sync, and all collectives on split communicators.
func checkFurther(ctx context.Context, c *nexar.Comm, round int) error {
	for _, n := range []int{0, 1, 1001, 20_011} {
		for _, f := range []operation{gatherV, allGatherV, scatterV, reduceScatterV, allToAllV, compressed, synchronize} {
			if err := f(ctx, c, n, round); err != nil {
				return fmt.Errorf("%d elements: %w", n, err)
			}
		}
	}
	if err := callAll(ctx, c, round); err != nil {
		return err
	}
	half, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	defer half.Close()
	if want := (c.Size() - 1 - c.Rank()) / 2; half.Rank() != want {
		return fmt.Errorf("split: rank %d of %d has become rank %d of %d, want %d", c.Rank(), c.Size(), half.Rank(), half.Size(), want)
	}
	if err := callAll(ctx, half, round); err != nil {
		return fmt.Errorf("split: %w", err)
	}
	if err := checkWorld(ctx, half, round); err != nil {
		return fmt.Errorf("split: %w", err)
	}
	return c.Barrier(ctx)
}

// unevenCounts returns the lengths of the blocks of all ranks, and where each begins in the vector of all blocks. Rank 1
// has an empty block.
func unevenCounts(size, n int) (counts, begin []int) {
	at := 0
	for r := range size {
		count := n + r*3
		if r == 1 {
			count = 0
		}
		counts, begin, at = append(counts, count), append(begin, at), at+count
	}
	return counts, append(begin, at)
}

// blockOf returns the block of element i.
func blockOf(begin []int, i int) (r int) {
	for i >= begin[r+1] {
		r++
	}
	return r
}

func gatherV(ctx context.Context, c *nexar.Comm, n, round int) error {
	counts, begin := unevenCounts(c.Size(), n)
	root := round % c.Size()
	var dst []int64
	if c.Rank() == root {
		dst = make([]int64, begin[c.Size()])
	}
	if err := nexar.GatherV(ctx, c, dst, vector(c.Rank(), counts[c.Rank()], round), counts, root); err != nil {
		return err
	}
	return equal("gather_v", dst, func(i int) int64 { r := blockOf(begin, i); return value(r, i-begin[r], round) })
}

func allGatherV(ctx context.Context, c *nexar.Comm, n, round int) error {
	counts, begin := unevenCounts(c.Size(), n)
	dst := make([]int64, begin[c.Size()])
	if err := nexar.AllGatherV(ctx, c, dst, vector(c.Rank(), counts[c.Rank()], round), counts); err != nil {
		return err
	}
	return equal("all_gather_v", dst, func(i int) int64 { r := blockOf(begin, i); return value(r, i-begin[r], round) })
}

func scatterV(ctx context.Context, c *nexar.Comm, n, round int) error {
	counts, begin := unevenCounts(c.Size(), n)
	root := (round + 1) % c.Size()
	var src []int64
	if c.Rank() == root {
		src = vector(root, begin[c.Size()], round)
	}
	dst := make([]int64, counts[c.Rank()])
	if err := nexar.ScatterV(ctx, c, dst, src, counts, root); err != nil {
		return err
	}
	return equal("scatter_v", dst, func(i int) int64 { return value(root, begin[c.Rank()]+i, round) })
}

func reduceScatterV(ctx context.Context, c *nexar.Comm, n, round int) error {
	counts, begin := unevenCounts(c.Size(), n)
	dst := make([]int64, counts[c.Rank()])
	if err := nexar.ReduceScatterV(ctx, c, dst, vector(c.Rank(), begin[c.Size()], round), counts, nexar.Sum); err != nil {
		return err
	}
	return equal("reduce_scatter_v", dst, func(i int) int64 { return sum(c.Size(), begin[c.Rank()]+i, round) })
}

// allToAllV sends n+r-s elements from rank s to rank r, and none if that is negative.
func allToAllV(ctx context.Context, c *nexar.Comm, n, round int) error {
	var dstCounts, srcCounts []int
	var src, want []int64
	for other := range c.Size() {
		to, from := max(0, n+other-c.Rank()), max(0, n+c.Rank()-other)
		dstCounts, srcCounts = append(dstCounts, from), append(srcCounts, to)
		for i := range to {
			src = append(src, value(c.Rank(), i+other, round))
		}
		for i := range from {
			want = append(want, value(other, i+c.Rank(), round))
		}
	}
	dst := make([]int64, len(want))
	if err := nexar.AllToAllV(ctx, c, dst, src, dstCounts, srcCounts); err != nil {
		return err
	}
	return equal("all_to_all_v", dst, func(i int) int64 { return want[i] })
}

// compressed adds vectors without loss, and vectors of small integers, which have exact encodings of 16 bits.
func compressed(ctx context.Context, c *nexar.Comm, n, round int) error {
	x := vector(c.Rank(), n, round)
	if err := nexar.AllReduceCompressed(ctx, c, x, nexar.Sum, compress.None{}); err != nil {
		return err
	}
	if err := equal("all_reduce_compressed", x, func(i int) int64 { return sum(c.Size(), i, round) }); err != nil {
		return err
	}
	f := make([]float32, n)
	for i := range f {
		f[i] = float32((c.Rank() + i + round) % 16)
	}
	if err := nexar.AllReduceCompressed(ctx, c, f, nexar.Sum, compress.Cast16{}); err != nil {
		return err
	}
	for i := range f {
		want := 0
		for r := range c.Size() {
			want += (r + i + round) % 16
		}
		if f[i] != float32(want) {
			return fmt.Errorf("all_reduce_compressed of 16 bits: element %d of %d is %v, want %d", i, n, f[i], want)
		}
	}
	return nil
}

// synchronize distributes values and a state that only rank 0 has.
func synchronize(ctx context.Context, c *nexar.Comm, n, round int) error {
	var data []int64
	number := []int64{-1}
	if c.Rank() == 0 {
		data, number[0] = vector(0, n, round), int64(round)
	}
	if err := nexar.BroadcastValues(ctx, c, 0, &data, number); err != nil {
		return err
	}
	if number[0] != int64(round) || len(data) != n {
		return fmt.Errorf("broadcast of values: round %d with %d elements, want %d with %d", number[0], len(data), round, n)
	}
	if err := equal("broadcast of values", data, func(i int) int64 { return value(0, i, round) }); err != nil {
		return err
	}
	state := vector(c.Rank(), n, round)
	if err := nexar.Sync(ctx, c, &state); err != nil {
		return err
	}
	return equal("sync", state, func(i int) int64 { return value(0, i, round) })
}

// callAll calls a function of all ranks, with arguments and results up to 300,000 bytes. Each round has its own function.
func callAll(ctx context.Context, c *nexar.Comm, round int) error {
	name := fmt.Sprint("repeat ", round)
	c.Register(name, func(_ context.Context, from int, args []byte) ([]byte, error) {
		for i := range args {
			args[i] ^= byte(from + c.Rank())
		}
		return args, nil
	})
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for to := range c.Size() {
		for _, n := range []int{0, 1, 300_000} {
			args := make([]byte, n)
			for i := range args {
				args[i] = byte(i * 7)
			}
			got, err := c.Call(ctx, to, name, args)
			if err != nil || len(got) != n {
				return fmt.Errorf("call of rank %d: %d of %d bytes: %w", to, len(got), n, err)
			}
			for i := range got {
				if got[i] != byte(i*7)^byte(c.Rank()+to) {
					return fmt.Errorf("call of rank %d: byte %d of %d is %d", to, i, n, got[i])
				}
			}
		}
	}
	return c.Barrier(ctx)
}

func checkMore(ctx context.Context, s *workerState, o command, _ *result) error {
	return checkFurther(ctx, s.comm(), o.Tag)
}

// workInPart splits the world into all ranks but [command].Peer, and repeats an operation and an all-reduce there until
// the command "stop". That one rank waits until it is killed.
func workInPart(ctx context.Context, s *workerState, o command, r *result) error {
	color := 0
	if s.comm().Rank() == o.Peer {
		color = -1
	}
	part, err := s.comm().Split(ctx, color, s.comm().Rank())
	if err != nil {
		return err
	}
	if part == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	defer part.Close()
	p, op := &s.progress, operations()[o.Op]
	p.begin(part)
	for ; ; r.Rounds++ {
		if err := op(ctx, part, o.N, r.Rounds); err != nil {
			return err
		}
		stopped := []int64{p.stopping()}
		if err := nexar.AllReduce(ctx, part, stopped, nexar.Sum); err != nil {
			return err
		}
		if stopped[0] > 0 {
			return nil
		}
		p.withCurrent(func(e *epoch) { e.Rounds++ })
	}
}

// traffic sends messages of random lengths between random ranks, with barriers in between, for at least
// [command].Rounds messages and [command].Duration. Tag is the random seed, the same on all ranks. With a Duration
// the ranks pause after each hundred messages, so that connections are also idle and other work goes on.
func traffic(ctx context.Context, s *workerState, o command, r *result) error {
	c, random, began := s.comm(), rand.New(rand.NewPCG(uint64(o.Tag), 22)), time.Now()
	for {
		from, to, n := random.IntN(c.Size()), random.IntN(c.Size()), 1+random.IntN(30_000)
		switch {
		case from == to:
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		case c.Rank() == from:
			if err := nexar.Send(ctx, c, vector(from, n, r.Rounds), to, 1); err != nil {
				return err
			}
		case c.Rank() == to:
			x := make([]int64, n)
			if _, err := nexar.Recv(ctx, c, x, from, 1); err != nil {
				return err
			}
			if err := equal(fmt.Sprintf("message from rank %d", from), x, func(i int) int64 { return value(from, i, r.Rounds) }); err != nil {
				return err
			}
		}
		if r.Rounds++; r.Rounds%100 > 0 {
			continue
		}
		more := []int64{0}
		if r.Rounds < o.Rounds || time.Since(began) < o.Duration {
			more[0] = 1
		}
		if err := nexar.AllReduce(ctx, c, more, nexar.Max); err != nil {
			return err
		}
		if more[0] == 0 {
			return nil
		}
		if o.Duration > 0 {
			time.Sleep(2 * time.Second)
		}
	}
}

// streamed is the length of the messages of a stream.
const streamed = 1 << 20

// stream sends messages to a peer for a time. The last one begins with 1.
func stream(ctx context.Context, s *workerState, o command, r *result) error {
	data, began := make([]byte, streamed), time.Now()
	for ; data[0] == 0; r.Rounds++ {
		if time.Since(began) >= o.Duration {
			data[0] = 1
		}
		data[streamed-1] = byte(r.Rounds)
		if err := nexar.Send(ctx, s.comm(), data, o.Peer, 7); err != nil {
			return err
		}
	}
	return nil
}

// absorb receives the messages of stream.
func absorb(ctx context.Context, s *workerState, o command, r *result) error {
	for data := make([]byte, streamed); data[0] == 0; r.Rounds++ {
		if _, err := nexar.Recv(ctx, s.comm(), data, o.Peer, 7); err != nil {
			return err
		}
		if data[streamed-1] != byte(r.Rounds) {
			return fmt.Errorf("message %d of rank %d ends with %d", r.Rounds, o.Peer, data[streamed-1])
		}
	}
	return nil
}

// timeMessages times messages of rank 0 to another one, each with an answer. That rank makes the same call.
func timeMessages(ctx context.Context, s *workerState, o command, r *result) error {
	data, answer := make([]byte, o.N), make([]byte, 8)
	for ; r.Rounds < o.Rounds; r.Rounds++ {
		if s.comm().Rank() > 0 {
			if _, err := nexar.Recv(ctx, s.comm(), data, o.Peer, 8); err != nil {
				return err
			}
			if err := nexar.Send(ctx, s.comm(), answer, o.Peer, 9); err != nil {
				return err
			}
			continue
		}
		began := time.Now()
		if err := nexar.Send(ctx, s.comm(), data, o.Peer, 8); err != nil {
			return err
		}
		if _, err := nexar.Recv(ctx, s.comm(), answer, o.Peer, 9); err != nil {
			return err
		}
		r.Times = append(r.Times, time.Since(began))
	}
	return nil
}
