package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// compressors returns a new compressor of each kind of package compress.
func compressors() map[string]func() compress.Compressor {
	return map[string]func() compress.Compressor{
		"none":           func() compress.Compressor { return compress.None{} },
		"top-k":          func() compress.Compressor { return &compress.TopK{Ratio: 0.1} },
		"random-k":       func() compress.Compressor { return &compress.RandomK{Seed: 5, Ratio: 0.2} },
		"unbiased":       func() compress.Compressor { return &compress.RandomK{Seed: 6, K: 9, Unbiased: true} },
		"quantize-8":     func() compress.Compressor { return compress.Quantize8{} },
		"quantize-8/33":  func() compress.Compressor { return compress.Quantize8{Block: 33} },
		"bfloat16":       func() compress.Compressor { return compress.Cast16{} },
		"float16":        func() compress.Compressor { return compress.Cast16{Format: compress.Float16} },
		"feedback":       func() compress.Compressor { return &compress.ErrorFeedback{} },
		"feedback to 8":  func() compress.Compressor { return &compress.ErrorFeedback{Compressor: compress.Quantize8{}} },
		"feedback to 16": func() compress.Compressor { return &compress.ErrorFeedback{Compressor: compress.Cast16{}} },
	}
}

// TestCompressed: with each compressor all ranks get the same bits over several steps:
// the sum of the decoded vectors in the order of the ranks.
func TestCompressed(t *testing.T) {
	require.NoRace(t, "it repeats TestConformance in other formats")
	for _, test := range []struct {
		worldtest.Medium
		ranks  []int
		counts []int
	}{
		{worldtest.Mem(), []int{1, 2, 3, 4, 5}, []int{0, 1, 1000, 20_011}},
		{worldtest.MemLinks(), []int{2, 5}, []int{1, 20_011}},
		{worldtest.Sim(), []int{3}, []int{1000}},
		{worldtest.QUIC(), []int{3}, []int{1, 20_011}},
		{worldtest.SHM(), []int{3}, []int{20_011}},
		{worldtest.TLS(), []int{2}, []int{20_011}},
		{worldtest.Mixed(), []int{4}, []int{20_011}},
	} {
		for _, n := range test.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, n), func(t *testing.T) {
				test.Require(t)
				w := test.World(t, n, nexar.Config{Deterministic: n%2 == 0})
				turn := uint64(0)
				for _, name := range slices.Sorted(maps.Keys(compressors())) {
					for _, count := range test.counts {
						turn++
						h := worldtest.Mix(turn)
						if !worldtest.AllTrials() && h>>24%12 != 0 {
							continue
						}
						p := compressedTrial{compressor: compressors()[name], count: count, op: [...]nexar.Op{nexar.Sum, nexar.Avg}[h%2], begin: h>>8%3 == 0}
						if err := compressedTrials()[h>>16%6](w, p); err != nil {
							t.Fatalf("%s, %d elements, %v: %v", name, count, p.op, err)
						}
					}
				}
			})
		}
	}
}

// A compressedTrial is a compressed all-reduce on all ranks, for several steps.
type compressedTrial struct {
	compressor func() compress.Compressor
	count      int
	op         nexar.Op
	begin      bool
}

// compressedTrials has a trial for each type.
func compressedTrials() [6]func(w *worldtest.World, p compressedTrial) error {
	return [...]func(w *worldtest.World, p compressedTrial) error{press[float32], press[nexar.Float16], press[float64], press[nexar.BFloat16], press[nexar.Float8E4M3], press[nexar.Float8E5M2]}
}

// pressSteps is enough for the residue of a step to arrive in a later one.
const pressSteps = 3

func press[T nexar.Number](w *worldtest.World, p compressedTrial) error {
	comms := w.Comms
	want := pressed[T](len(comms), p)
	got := make([][][]byte, pressSteps)
	for step := range got {
		got[step] = make([][]byte, len(comms))
	}
	err := worldtest.ForEach(len(comms), func(rank int) error {
		c, comp := comms[rank], p.compressor()
		for step := range pressSteps {
			data := newGuarded[T](p.count)
			copy(data.v, gradient[T](rank, step, p.count))
			var err error
			if p.begin {
				err = nexar.StartAllReduceCompressed(context.Background(), c, data.v, p.op, comp).Wait()
			} else {
				err = nexar.AllReduceCompressed(context.Background(), c, data.v, p.op, comp)
			}
			if err := errors.Join(err, data.check("data")); err != nil {
				return err
			}
			got[step][rank] = bytesOf(data.v)
		}
		if n := w.PoolInUse(rank); n > 0 {
			return fmt.Errorf("%d buffers were not put back", n)
		}
		return nil
	})
	for step, results := range got {
		for rank, r := range results {
			if err == nil && !bytes.Equal(r, bytesOf(want[step])) {
				err = fmt.Errorf("step %d: rank %d has other %v than the oracle", step, rank, typeOf[T]())
			}
		}
	}
	return err
}

// gradient returns the vector of a rank in a step, with a few numbers that are not
// finite.
func gradient[T nexar.Number](rank, step, n int) []T {
	v := make([]T, n)
	for i := range v {
		h := worldtest.Mix(uint64(step)<<48 + uint64(rank)<<40 + uint64(i))
		f := (float64(h>>11)/(1<<53) - 0.5) * math.Exp2(float64(h%8))
		if h%1013 == 0 {
			f = [...]float64{math.Inf(1), math.Inf(-1), math.NaN(), 0}[h>>20%4]
		}
		v[i] = floatOf[T](f)
	}
	return v
}

// floatOf rounds to T by way of float32, as compressed vectors are.
func floatOf[T nexar.Number](f float64) T {
	switch typeOf[T]() {
	case kernel.Float64:
		return fromBits[T](math.Float64bits(f))
	case kernel.Float32:
		return fromBits[T](uint64(math.Float32bits(float32(f))))
	case kernel.Float16:
		return fromBits[T](uint64(nexar.ToFloat16(float32(f))))
	case kernel.Float8E4M3:
		return fromBits[T](uint64(nexar.ToFloat8E4M3(float32(f))))
	case kernel.Float8E5M2:
		return fromBits[T](uint64(nexar.ToFloat8E5M2(float32(f))))
	}
	return fromBits[T](uint64(nexar.ToBFloat16(float32(f))))
}

// valueOf is the inverse of floatOf.
func valueOf[T nexar.Number](x T) float32 {
	bits := toBits(x)
	switch typeOf[T]() {
	case kernel.Float64:
		return float32(math.Float64frombits(bits))
	case kernel.Float32:
		return math.Float32frombits(uint32(bits))
	case kernel.Float16:
		return nexar.Float16(bits).Float32()
	case kernel.Float8E4M3:
		return nexar.Float8E4M3(bits).Float32()
	case kernel.Float8E5M2:
		return nexar.Float8E5M2(bits).Float32()
	}
	return nexar.BFloat16(bits).Float32()
}

// exactly returns the expected result of each step for float64 and compress.None: the sum in
// the order of the ranks.
func exactly[T nexar.Number](n int, p compressedTrial) (steps [][]T) {
	for step := range pressSteps {
		total := make([]float64, p.count)
		for rank := range n {
			for i, x := range gradient[T](rank, step, p.count) {
				if v := math.Float64frombits(toBits(x)); rank == 0 {
					total[i] = v
				} else {
					total[i] += v
				}
			}
		}
		result := make([]T, p.count)
		for i, x := range total {
			if p.op == nexar.Avg {
				x /= float64(n)
			}
			if x != x && n > 1 {
				x = math.Float64frombits(0x7ff8000000000000)
			}
			result[i] = fromBits[T](math.Float64bits(x))
		}
		steps = append(steps, result)
	}
	return steps
}

// pressed returns the expected result of each step: the decoded vectors of all ranks,
// added in their order.
func pressed[T nexar.Number](n int, p compressedTrial) (steps [][]T) {
	comps := make([]compress.Compressor, n)
	for rank := range comps {
		comps[rank] = p.compressor()
	}
	if typeOf[T]() == kernel.Float64 {
		if _, ok := comps[0].(compress.None); ok {
			return exactly[T](n, p)
		}
		return pressedFloat64[T](comps, p)
	}
	for step := range pressSteps {
		total := make([]float32, p.count)
		for rank, comp := range comps {
			src := make([]float32, p.count)
			for i, x := range gradient[T](rank, step, p.count) {
				src[i] = valueOf(x)
			}
			encoded, err := comp.Append(nil, src)
			if err == nil {
				err = comp.AddTo(total, encoded)
			}
			if err != nil {
				panic(err)
			}
		}
		result := make([]T, p.count)
		for i, x := range total {
			if p.op == nexar.Avg {
				x /= float32(n)
			}
			result[i] = floatOf[T](float64(x))
		}
		steps = append(steps, result)
	}
	return steps
}

// pressedFloat64 is pressed for float64, which the compressors encode and add as float64.
func pressedFloat64[T nexar.Number](comps []compress.Compressor, p compressedTrial) (steps [][]T) {
	for step := range pressSteps {
		total := make([]float64, p.count)
		for rank, comp := range comps {
			typed := comp.(compress.TypedCompressor)
			encoded, err := typed.AppendTyped(nil, kernel.Float64, bytesOf(gradient[T](rank, step, p.count)))
			if err == nil {
				err = typed.AddTyped(bytesOf(total), kernel.Float64, encoded)
			}
			if err != nil {
				panic(err)
			}
		}
		result := make([]T, p.count)
		for i, x := range total {
			if p.op == nexar.Avg {
				x /= float64(len(comps))
			}
			result[i] = fromBits[T](math.Float64bits(x))
		}
		steps = append(steps, result)
	}
	return steps
}

// TestUncompressed: without compression the sum is that of the elements in the order of
// the ranks, rounded after each addition.
func TestUncompressed(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 4, nexar.Config{})
	const count = 5000
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		data := make([]float32, count)
		for i := range data {
			data[i] = summand(rank, i)
		}
		if err := nexar.AllReduceCompressed(t.Context(), c, data, nexar.Sum, compress.None{}); err != nil {
			return err
		}
		for i, got := range data {
			want := float32(0)
			for r := range comms {
				want += summand(r, i)
			}
			if got != want {
				return fmt.Errorf("element %d is %v, want %v", i, got, want)
			}
		}
		return nil
	})
}

// summand returns elements with sums that depend on the order.
func summand(rank, i int) float32 {
	h := worldtest.Mix(uint64(rank)<<32 + uint64(i))
	return float32(math.Ldexp(float64(h>>40), int(h%30)))
}

// TestErrorFeedback: the part of a vector that a step omits is sent in a later step, so
// that after enough steps all of it has arrived.
func TestErrorFeedback(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	const count, steps = 40, 10
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		comp := &compress.ErrorFeedback{Compressor: &compress.TopK{K: count / steps}}
		total := make([]float32, count)
		for step := range steps {
			data := make([]float32, count)
			if step == 0 {
				for i := range data {
					data[i] = float32((i*7+rank*13)%count + 1)
				}
			}
			if err := nexar.AllReduceCompressed(t.Context(), c, data, nexar.Sum, comp); err != nil {
				return err
			}
			if kept := len(slices.DeleteFunc(slices.Clone(data), func(f float32) bool { return f == 0 })); kept > 3*count/steps {
				return fmt.Errorf("step %d: %d elements, want no more than 3 × %d", step, kept, count/steps)
			}
			for i, f := range data {
				total[i] += f
			}
		}
		for i, got := range total {
			if want := float32((i*7)%count + (i*7+13)%count + (i*7+26)%count + 3); got != want {
				return fmt.Errorf("element %d is %v after %d steps, want %v", i, got, steps, want)
			}
		}
		return nil
	})
}
