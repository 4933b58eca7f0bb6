//go:build linux

package gpudirect

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// block is the length of a block of the collectives below. It is so long that it needs a grant.
const block = 256 << 10

// A call is a collective on vectors that are filled with the pattern of the rank.
type call struct {
	name     string
	dst, src int // bytes; 0 for none
	run      func(ctx context.Context, r *rank, dst, src device.Region) error
	// want returns the expected content of dst.
	want func(rank, world int) []byte
}

// part returns block i of the source of a rank.
func part(rank, i, length int) []byte { return pattern(length, rank)[i*block : (i+1)*block] }

func join(n int, f func(i int) []byte) (b []byte) {
	for i := range n {
		b = append(b, f(i)...)
	}
	return b
}

// moving returns the collectives that move data, in a world of n ranks.
func moving(n int) []call {
	root := n - 1
	return []call{
		{"broadcast", block * n, 0, func(ctx context.Context, r *rank, dst, _ device.Region) error {
			return r.on().Broadcast(ctx, device.Uint8, dst, root)
		}, func(int, int) []byte { return pattern(block*n, root) }},
		{"all-gather", block * n, block, func(ctx context.Context, r *rank, dst, src device.Region) error {
			return r.on().AllGather(ctx, device.Uint8, dst, src)
		}, func(int, int) []byte { return join(n, func(i int) []byte { return pattern(block, i) }) }},
		{"all-to-all", block * n, block * n, func(ctx context.Context, r *rank, dst, src device.Region) error {
			return r.on().AllToAll(ctx, device.Uint8, dst, src)
		}, func(rank, _ int) []byte { return join(n, func(i int) []byte { return part(i, rank, block*n) }) }},
		{"gather", block * n, block, func(ctx context.Context, r *rank, dst, src device.Region) error {
			return r.on().Gather(ctx, device.Uint8, dst, src, root)
		}, func(rank, _ int) []byte {
			if rank != root {
				return nil
			}
			return join(n, func(i int) []byte { return pattern(block, i) })
		}},
		{"scatter", block, block * n, func(ctx context.Context, r *rank, dst, src device.Region) error {
			return r.on().Scatter(ctx, device.Uint8, dst, src, root)
		}, func(rank, _ int) []byte { return part(root, rank, block*n) }},
	}
}

// summing returns an all-reduce, in a world of n ranks.
func summing(n int) call {
	return call{"all-reduce", block * n, 0, func(ctx context.Context, r *rank, dst, _ device.Region) error {
		return r.on().AllReduce(ctx, device.Uint8, dst, nexar.Sum)
	}, func(int, int) []byte {
		sum := pattern(block*n, 0)
		for rank := 1; rank < n; rank++ {
			for i, v := range pattern(block*n, rank) {
				sum[i] += v
			}
		}
		return sum
	}}
}

// perform runs a call on new vectors and checks the result.
func perform(ctx context.Context, r *rank, c call) error {
	var dst, src device.Region
	var b device.Buffer
	if c.src > 0 {
		from := r.buffer(c.src)
		defer from.Free()
		r.fill(from, r.me())
		src = device.Whole(from)
	}
	b = r.buffer(c.dst)
	defer b.Free()
	r.fill(b, r.me())
	dst = device.Whole(b)
	r.wait(ctx)
	if err := c.run(ctx, r, dst, src); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return r.check(c.name, dst, c.want(r.me(), r.World().Size()))
}

// TestMovingCollectives: collectives that move data move it between the GPUs and the network cards, and copy nothing through the
// host.
func TestMovingCollectives(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		f := newFakes(t)
		for _, c := range moving(n) {
			t.Run(fmt.Sprintf("%s of %d", c.name, n), func(t *testing.T) {
				var copied atomic.Int64
				inWorld(t, f, n, func(ctx context.Context, r *rank) error {
					checked := c
					checked.run = func(ctx context.Context, r *rank, dst, src device.Region) error {
						r.wait(ctx)
						before := f.traffic().staged
						r.wait(ctx)
						err := c.run(ctx, r, dst, src)
						r.wait(ctx)
						copied.Add(int64(f.traffic().staged - before))
						r.wait(ctx)
						return err
					}
					return perform(ctx, r, checked)
				})
				if k := copied.Load(); k != 0 {
					t.Errorf("%d copies between GPUs and the host, want none", k)
				}
				if f.verbs.Written() == 0 {
					t.Error("the network cards have written nothing to GPUs")
				}
			})
		}
	}
}

// floats returns the vector of a rank for reductions: numbers with sums that depend on the order, and special ones.
func floats(n, rank int) []byte {
	b := make([]byte, 4*n)
	for i := range n {
		v := float32(i%1013+1) * float32(math.Pow(-3, float64(rank+i%5)))
		switch i % 97 {
		case 3:
			v = float32(math.Inf(1 - 2*(rank%2)))
		case 5:
			v = float32(math.Copysign(0, float64(rank%2)-0.5))
		}
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return b
}

// TestReducingCollectives: payloads that are reduced arrive in the memory of the GPU, and its kernels reduce them, with the bits
// of ranks with slices.
func TestReducingCollectives(t *testing.T) {
	const elements = 400_000
	for _, n := range []int{2, 3} {
		for _, op := range []nexar.Op{nexar.Sum, nexar.Max} {
			t.Run(fmt.Sprintf("%v of %d", op, n), func(t *testing.T) {
				f := newFakes(t)
				var copied atomic.Int64
				inWorld(t, f, n, func(ctx context.Context, r *rank) error {
					want := make([]float32, elements)
					mine := floats(elements, r.me())
					for i := range want {
						want[i] = math.Float32frombits(binary.LittleEndian.Uint32(mine[4*i:]))
					}
					if err := nexar.AllReduce(ctx, r.World(), want, op); err != nil {
						return err
					}
					expected := make([]byte, 4*elements)
					for i := range want {
						binary.LittleEndian.PutUint32(expected[4*i:], math.Float32bits(want[i]))
					}
					b := r.buffer(4 * elements)
					if err := r.gpu.CopyIn(ctx, device.Whole(b), mine); err != nil {
						return err
					}
					r.wait(ctx)
					before := f.traffic()
					r.wait(ctx)
					if err := r.on().AllReduce(ctx, device.Float32, device.Whole(b), op); err != nil {
						return err
					}
					r.wait(ctx)
					moved := f.traffic().minus(before)
					copied.Add(int64(moved.staged))
					if moved.written < 4*elements {
						return fmt.Errorf("the network cards have written %d bytes to GPUs, want at least %d", moved.written, 4*elements)
					}
					r.wait(ctx)
					return r.check("all-reduce", device.Whole(b), expected)
				})
				if k := copied.Load(); k != 0 {
					t.Errorf("%d copies between GPUs and the host, want none", k)
				}
			})
		}
	}
}
