package api

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCompressedTyped: None keeps all types and takes all operations, with the results of
// AllReduce.
func TestCompressedTyped(t *testing.T) {
	t.Run("float64", func(t *testing.T) {
		testCompressedTyped(t, []float64{1, 1 << 60, 0.1}, []float64{0x1p-52, 1, 0.2}, nexar.Sum, nexar.Avg, nexar.Min, nexar.Max, nexar.Prod)
	})
	t.Run("float32", func(t *testing.T) {
		testCompressedTyped(t, []float32{1, -2, 0.1}, []float32{3, 4, 0.2}, nexar.Sum, nexar.Avg, nexar.Min, nexar.Max, nexar.Prod)
	})
	t.Run("named int64", func(t *testing.T) {
		testCompressedTyped(t, []counter{1, 1<<62 + 1, -3}, []counter{7, 5, -4}, nexar.Sum, nexar.Avg, nexar.Max, nexar.Prod, nexar.BitXor)
	})
	t.Run("complex64", func(t *testing.T) {
		testCompressedTyped(t, []complex64{1 + 2i}, []complex64{3i}, nexar.Sum, nexar.Prod)
	})
	t.Run("empty", func(t *testing.T) { testCompressedTyped(t, []uint8{}, []uint8{}, nexar.Max) })
}

func testCompressedTyped[T nexar.Number](t *testing.T, a, b []T, ops ...nexar.Op) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		for _, op := range ops {
			want := slices.Clone([][]T{a, b}[rank])
			got, started := slices.Clone(want), slices.Clone(want)
			err := errors.Join(
				nexar.AllReduce(t.Context(), c, want, op),
				nexar.AllReduceCompressed(t.Context(), c, got, op, compress.None{}),
				nexar.StartAllReduceCompressed(t.Context(), c, started, op, compress.None{}).Wait(),
			)
			if err != nil {
				return err
			}
			if !slices.Equal(got, want) || !slices.Equal(started, want) {
				t.Errorf("%v: compressed %v and %v, want %v", op, got, started, want)
			}
		}
		return nil
	})
}

// TestCompressedFloat64: with every compressor, sums of float64 vectors have more precision and
// range than float32, also on the ranks after the first.
func TestCompressedFloat64(t *testing.T) {
	comms := worldtest.Local(t, 3, nexar.Config{})
	for name, comp := range map[string]func() compress.Compressor{
		"none":           func() compress.Compressor { return compress.None{} },
		"top-k":          func() compress.Compressor { return &compress.TopK{Ratio: 1} },
		"random-k":       func() compress.Compressor { return &compress.RandomK{Ratio: 1} },
		"quantize-8":     func() compress.Compressor { return compress.Quantize8{Block: 1} },
		"cast-16":        func() compress.Compressor { return compress.Cast16{} },
		"error feedback": func() compress.Compressor { return &compress.ErrorFeedback{Compressor: &compress.TopK{K: 4}} },
	} {
		t.Run(name, func(t *testing.T) {
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				// Exact in 16 bits, so that each compressor sends it unchanged. The sum is not
				// a float32.
				a := [][]float64{{1, 3, 0x1p60, 0}, {0x1p-30, 0x1p-40, 1024, 0x1p-50}, {0x1p-30, 0, -0x1p60, 1}}[rank]
				want := []float64{1 + 0x1p-29, 3 + 0x1p-40, 1024, 1 + 0x1p-50}
				sum, avg := slices.Clone(a), slices.Clone(a)
				err := nexar.AllReduceCompressed(t.Context(), c, sum, nexar.Sum, comp())
				if err == nil {
					err = nexar.StartAllReduceCompressed(t.Context(), c, avg, nexar.Avg, comp()).Wait()
				}
				for i := range want {
					if err == nil && (sum[i] != want[i] || avg[i] != want[i]/3) {
						t.Errorf("rank %d, element %d: sum %x, want %x; average %x", rank, i, sum[i], want[i], avg[i])
					}
				}
				return err
			})
		})
	}
	t.Run("range", func(t *testing.T) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			v := []float64{1e300, -1e300}
			err := nexar.AllReduceCompressed(t.Context(), c, v, nexar.Avg, &compress.ErrorFeedback{Compressor: compress.Quantize8{}})
			if err == nil && (v[0] != 1e300 || v[1] != -1e300) {
				t.Errorf("rank %d: %v, want ±1e300", rank, v)
			}
			return err
		})
	})
}

// TestCompressedNotAllowed: the error names the operation, the type and the compressor.
func TestCompressedNotAllowed(t *testing.T) {
	comms := worldtest.Local(t, 1, nexar.Config{})
	unnamed := &compress.ErrorFeedback{Compressor: struct{ compress.Compressor }{compress.None{}}}
	for text, err := range map[string]error{
		"max of float64 is not allowed by the compressor top-k":                   nexar.AllReduceCompressed(t.Context(), comms[0], []float64{1}, nexar.Max, &compress.TopK{}),
		"prod of float64 is not allowed by the compressor cast-16":                nexar.AllReduceCompressed(t.Context(), comms[0], []float64{1}, nexar.Prod, &compress.ErrorFeedback{Compressor: compress.Cast16{}}),
		"sum of int64 is not allowed by the compressor quantize-8":                nexar.AllReduceCompressed(t.Context(), comms[0], []int64{1}, nexar.Sum, compress.Quantize8{}),
		"min of int32 is not allowed by the compressor *compress.ErrorFeedback: ": nexar.AllReduceCompressed(t.Context(), comms[0], []int32{1}, nexar.Min, unnamed),
		"bit_and of float64 is not allowed by the compressor none":                nexar.AllReduceCompressed(t.Context(), comms[0], []float64{1}, nexar.BitAnd, compress.None{}),
	} {
		if !errors.Is(err, nexar.ErrInvalidOp) || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want ErrInvalidOp and the text %q", err, text)
		}
	}
}

// TestCompressedTypedDiffers: if the types of two ranks differ, both get the same error.
func TestCompressedTypedDiffers(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		var err error
		if rank == 0 {
			err = nexar.AllReduceCompressed(t.Context(), c, []int32{1}, nexar.Max, compress.None{})
		} else {
			err = nexar.AllReduceCompressed(t.Context(), c, []int64{1}, nexar.Max, compress.None{})
		}
		if e, ok := errors.AsType[*nexar.CompressError](err); !ok || e.Rank != 1 || !errors.Is(err, nexar.ErrInvalidType) {
			t.Errorf("rank %d: %v, want a CompressError of rank 1 about its type", rank, err)
		}
		return c.Err()
	})
}
