package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/ptx"
	"github.com/nexar-go/nexar/hw/internal/ptx/ptxtest"
	"github.com/nexar-go/nexar/internal/kernel"
)

// TestBits: reductions and quotients of a GPU have the bits of the host's, for operands at the limits of all types and
// random ones, in groups of elements and one by one.
func TestBits(t *testing.T) {
	d := machine(t).open(t, 0, cuda.Config{})
	s, err := d.NewStream()
	must(t, err)
	rng := rand.New(rand.NewPCG(4, 2))
	elements := 0
	for _, typ := range ptxtest.Types() {
		var a, b []byte
		for len(a) < 4<<20 {
			x, y := ptxtest.Operands(typ, rng)
			a, b = append(a, x...), append(b, y...)
		}
		src, err := d.Alloc(t.Context(), len(a)+typ.Size())
		must(t, err)
		dst, err := d.Alloc(t.Context(), len(a)+typ.Size())
		must(t, err)
		// The second position is aligned to an element only.
		for _, at := range []int{0, typ.Size()} {
			part := device.Region{Buffer: dst, Offset: at, Bytes: len(a)}
			must(t, d.CopyIn(t.Context(), device.Region{Buffer: src, Offset: at, Bytes: len(b)}, b))
			result := func() []byte {
				must(t, s.Wait(t.Context()))
				got := make([]byte, len(a))
				must(t, d.CopyOut(t.Context(), got, part))
				elements += len(a) / typ.Size()
				return got
			}
			for op := device.Sum; op <= device.BitXor; op++ {
				if !op.Defined(typ) {
					continue
				}
				want := make([]byte, len(a))
				kernel.Reducer(typ, kernel.Op(op))(want, a, b)
				must(t, d.CopyIn(t.Context(), part, a))
				must(t, s.(device.Reducer).Reduce(part, device.Region{Buffer: src, Offset: at, Bytes: len(b)}, typ, op))
				ptxtest.Compare(t, fmt.Sprintf("%v of %v at byte %d", op, typ, at), typ, result(), want)
			}
			for _, by := range []int{1, 3, 7, 1000, ptx.HalfDivisorMax} {
				if typ.Complex() {
					break // divided as parts
				}
				want := bytes.Clone(a)
				kernel.Divider(typ)(want, by)
				must(t, d.CopyIn(t.Context(), part, a))
				must(t, cuda.Divide(s, part, typ, by))
				ptxtest.Compare(t, fmt.Sprintf("%v divided by %d", typ, by), typ, result(), want)
			}
		}
		must(t, src.Free())
		must(t, dst.Free())
	}
	t.Logf("%s: %d elements compared", d.Info().Name, elements)
}

// TestHalves: reductions of pairs of 16-bit floats have the bits of the host's. With TRIALS=all, of all pairs.
func TestHalves(t *testing.T) {
	const values, rows = 1 << 16, 32
	step := 257 // odd: all exponents, and both signs
	if os.Getenv("TRIALS") == "all" {
		step = 1
	}
	d := machine(t).open(t, 0, cuda.Config{})
	y := make([]byte, 0, 2*values*rows)
	for range rows {
		for v := range values {
			y = binary.NativeEndian.AppendUint16(y, uint16(v))
		}
	}
	src := filled(t, d, y)
	batches := make(chan int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			dst, err := d.Alloc(t.Context(), len(y))
			if err != nil {
				t.Error(err)
				return
			}
			defer dst.Free()
			x, want, got := make([]byte, len(y)), make([]byte, len(y)), make([]byte, len(y))
			for first := range batches {
				for row := range rows {
					line := x[2*values*row:][:2*values]
					for at := 0; at < len(line); at += 2 {
						binary.NativeEndian.PutUint16(line[at:], uint16(first+row*step))
					}
				}
				for _, typ := range []device.Type{device.Float16, device.BFloat16} {
					for _, op := range ptx.Ops(typ) {
						kernel.Reducer(typ, kernel.Op(op))(want, x, y)
						err := errors.Join(d.CopyIn(t.Context(), device.Whole(dst), x), s.(device.Reducer).Reduce(device.Whole(dst), device.Whole(src), typ, op),
							s.Wait(t.Context()), d.CopyOut(t.Context(), got, device.Whole(dst)))
						if err != nil {
							t.Error(err)
							return
						}
						ptxtest.Compare(t, fmt.Sprintf("%v of %v, first operands from %#x", op, typ, first), typ, got, want)
					}
				}
			}
		})
	}
	n := 0
	for first := 0; first < values; first += rows * step {
		batches <- first
		n += rows
	}
	close(batches)
	all.Wait()
	t.Logf("%s: %d of %d first operands with all second ones", d.Info().Name, min(n, values), values)
}

// TestOutOfMemory: more memory than the GPU has.
func TestOutOfMemory(t *testing.T) {
	d := machine(t).open(t, 0, cuda.Config{})
	var buffers []device.Buffer
	var short *device.MemoryError
	const piece = 8 << 30
	for {
		b, err := d.Alloc(t.Context(), piece)
		if errors.As(err, &short) {
			break
		}
		must(t, err)
		buffers = append(buffers, b)
	}
	t.Logf("%s: %v after %d GiB", d.Info().Name, short, 8*len(buffers))
	if short.Requested != piece || len(buffers) == 0 {
		t.Errorf("%+v after %d buffers", short, len(buffers))
	}
	for _, b := range buffers {
		must(t, b.Free())
	}
	b := filled(t, d, pattern(1000))
	if !bytes.Equal(contents(t, d, b), pattern(1000)) {
		t.Error("the GPU does not work after it had no memory")
	}
}

// TestSpeed: staging is as fast as copies of the driver to locked memory, at least 85 %.
func TestSpeed(t *testing.T) {
	d := machine(t).open(t, 0, cuda.Config{})
	const bytes, n, rounds = 64 << 20, 20, 5
	b := filled(t, d, make([]byte, bytes))
	st, err := d.Stage(t.Context(), bytes)
	must(t, err)
	s, err := d.NewStream()
	must(t, err)
	for _, in := range []bool{true, false} {
		best := func(f func() time.Duration) float64 {
			took := f() // the first call maps memory
			for range rounds {
				took = min(took, f())
			}
			return float64(bytes) * n / took.Seconds() / 1e9
		}
		plain := best(func() time.Duration {
			took, err := d.Copies(b, n, in)
			must(t, err)
			return took
		})
		ours := best(func() time.Duration {
			start := time.Now()
			for range n {
				if in {
					must(t, s.ReceiveInto(st, 0, device.Whole(b)))
				} else {
					must(t, s.StageSend(st, 0, device.Whole(b)))
				}
			}
			must(t, s.Wait(t.Context()))
			return time.Since(start)
		})
		slice := make([]byte, bytes)
		direct := best(func() time.Duration {
			start := time.Now()
			for range n {
				if in {
					must(t, d.CopyIn(t.Context(), device.Whole(b), slice))
				} else {
					must(t, d.CopyOut(t.Context(), slice, device.Whole(b)))
				}
			}
			return time.Since(start)
		})
		t.Logf("%s: to the GPU %v: driver %.1f GB/s, staging %.1f GB/s, slices %.1f GB/s", d.Info().Name, in, plain, ours, direct)
		if ours < 0.85*plain {
			t.Errorf("to the GPU %v: staging has %.0f %% of the speed of the driver, want 85 %%", in, 100*ours/plain)
		}
	}
	// Reductions move three times their bytes.
	other := filled(t, d, make([]byte, bytes))
	for _, typ := range ptxtest.Types() {
		must(t, s.(device.Reducer).Reduce(device.Whole(b), device.Whole(other), typ, device.Prod)) // compiles
		must(t, s.Wait(t.Context()))
		start := time.Now()
		for range 10 * n {
			must(t, s.(device.Reducer).Reduce(device.Whole(b), device.Whole(other), typ, device.Prod))
		}
		must(t, s.Wait(t.Context()))
		t.Logf("%s: product of %v: %.0f GB/s of memory", d.Info().Name, typ, 3*float64(bytes)*10*n/time.Since(start).Seconds()/1e9)
	}
}

// TestWorld: ranks with a GPU and ranks with slices have the same bits, in all forms of an all-reduce.
func TestWorld(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		const n, elements = 4, 10_007
		comms, err := nexar.Local(t.Context(), n, nexar.Config{})
		must(t, err)
		defer func() {
			for _, c := range comms {
				c.Close()
			}
		}()
		devices, streams := make([]device.Device, n), make([]device.Stream, n)
		for i := range n {
			devices[i] = host.Device{}
			if i != 2 {
				devices[i] = dr.open(t, i%dr.gpus(t), cuda.Config{})
			}
			streams[i], err = devices[i].NewStream()
			must(t, err)
		}
		for _, typ := range []device.Type{device.Float32, device.Float16, device.BFloat16, device.Float8E4M3, device.Float8E5M2, device.Float64, device.Complex64, device.Int8, device.Uint64} {
			rng := rand.New(rand.NewPCG(uint64(typ), 3))
			in := make([][]byte, n)
			for i := range in {
				for len(in[i]) < elements*typ.Size() {
					x, _ := ptxtest.Operands(typ, rng)
					in[i] = append(in[i], x...)
				}
				in[i] = in[i][:elements*typ.Size()]
			}
			for _, op := range []nexar.Op{nexar.Sum, nexar.Prod, nexar.Avg} {
				out := make([][]byte, n)
				errs := make([]error, n)
				var all sync.WaitGroup
				for i, c := range comms {
					all.Go(func() {
						ctx := t.Context()
						b, err := devices[i].Alloc(ctx, len(in[i]))
						if err == nil {
							defer b.Free()
							err = devices[i].CopyIn(ctx, device.Whole(b), in[i])
						}
						if err == nil {
							err = c.WithStream(streams[i]).AllReduce(ctx, typ, device.Whole(b), op)
						}
						if err == nil {
							out[i] = make([]byte, len(in[i]))
							err = devices[i].CopyOut(ctx, out[i], device.Whole(b))
						}
						errs[i] = err
					})
				}
				all.Wait()
				must(t, errors.Join(errs...))
				for i := range out {
					ptxtest.Compare(t, fmt.Sprintf("%v of %v: rank %d against rank 2", op, typ, i), typ, out[i], out[2])
				}
			}
		}
	})
}
