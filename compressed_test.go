package nexar

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/compress"
)

// TestCompressedTyped: None keeps all types and takes all operations, with the results of
// AllReduce.
func TestCompressedTyped(t *testing.T) {
	t.Run("float64", func(t *testing.T) {
		testCompressedTyped(t, []float64{1, 1 << 60, 0.1}, []float64{0x1p-52, 1, 0.2}, Sum, Avg, Min, Max, Prod)
	})
	t.Run("float32", func(t *testing.T) {
		testCompressedTyped(t, []float32{1, -2, 0.1}, []float32{3, 4, 0.2}, Sum, Avg, Min, Max, Prod)
	})
	t.Run("named int64", func(t *testing.T) {
		testCompressedTyped(t, []counter{1, 1<<62 + 1, -3}, []counter{7, 5, -4}, Sum, Avg, Max, Prod, BitXor)
	})
	t.Run("complex64", func(t *testing.T) { testCompressedTyped(t, []complex64{1 + 2i}, []complex64{3i}, Sum, Prod) })
	t.Run("empty", func(t *testing.T) { testCompressedTyped(t, []uint8{}, []uint8{}, Max) })
}

func testCompressedTyped[T Number](t *testing.T, a, b []T, ops ...Op) {
	comms := localCluster(t, 2, Config{})
	onAll(t, comms, func(rank int, c *Comm) error {
		for _, op := range ops {
			want := slices.Clone([][]T{a, b}[rank])
			got, started := slices.Clone(want), slices.Clone(want)
			err := errors.Join(
				AllReduce(t.Context(), c, want, op),
				AllReduceCompressed(t.Context(), c, got, op, compress.None{}),
				StartAllReduceCompressed(t.Context(), c, started, op, compress.None{}).Wait(),
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
	comms := localCluster(t, 3, Config{})
	for name, comp := range map[string]func() compress.Compressor{
		"none":           func() compress.Compressor { return compress.None{} },
		"top-k":          func() compress.Compressor { return &compress.TopK{Ratio: 1} },
		"random-k":       func() compress.Compressor { return &compress.RandomK{Ratio: 1} },
		"quantize-8":     func() compress.Compressor { return compress.Quantize8{Block: 1} },
		"cast-16":        func() compress.Compressor { return compress.Cast16{} },
		"error feedback": func() compress.Compressor { return &compress.ErrorFeedback{Compressor: &compress.TopK{K: 4}} },
	} {
		t.Run(name, func(t *testing.T) {
			onAll(t, comms, func(rank int, c *Comm) error {
				// Exact in 16 bits, so that each compressor sends it unchanged. The sum is not
				// a float32.
				a := [][]float64{{1, 3, 0x1p60, 0}, {0x1p-30, 0x1p-40, 1024, 0x1p-50}, {0x1p-30, 0, -0x1p60, 1}}[rank]
				want := []float64{1 + 0x1p-29, 3 + 0x1p-40, 1024, 1 + 0x1p-50}
				sum, avg := slices.Clone(a), slices.Clone(a)
				err := AllReduceCompressed(t.Context(), c, sum, Sum, comp())
				if err == nil {
					err = StartAllReduceCompressed(t.Context(), c, avg, Avg, comp()).Wait()
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
		onAll(t, comms, func(rank int, c *Comm) error {
			v := []float64{1e300, -1e300}
			err := AllReduceCompressed(t.Context(), c, v, Avg, &compress.ErrorFeedback{Compressor: compress.Quantize8{}})
			if err == nil && (v[0] != 1e300 || v[1] != -1e300) {
				t.Errorf("rank %d: %v, want ±1e300", rank, v)
			}
			return err
		})
	})
}

// TestCompressedNotAllowed: the error names the operation, the type and the compressor.
func TestCompressedNotAllowed(t *testing.T) {
	comms := localCluster(t, 1, Config{})
	unnamed := &compress.ErrorFeedback{Compressor: struct{ compress.Compressor }{compress.None{}}}
	for text, err := range map[string]error{
		"max of float64 is not allowed by the compressor top-k":                   AllReduceCompressed(t.Context(), comms[0], []float64{1}, Max, &compress.TopK{}),
		"prod of float64 is not allowed by the compressor cast-16":                AllReduceCompressed(t.Context(), comms[0], []float64{1}, Prod, &compress.ErrorFeedback{Compressor: compress.Cast16{}}),
		"sum of int64 is not allowed by the compressor quantize-8":                AllReduceCompressed(t.Context(), comms[0], []int64{1}, Sum, compress.Quantize8{}),
		"min of int32 is not allowed by the compressor *compress.ErrorFeedback: ": AllReduceCompressed(t.Context(), comms[0], []int32{1}, Min, unnamed),
		"bit_and of float64 is not allowed by the compressor none":                AllReduceCompressed(t.Context(), comms[0], []float64{1}, BitAnd, compress.None{}),
	} {
		if !errors.Is(err, ErrInvalidOp) || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want ErrInvalidOp and the text %q", err, text)
		}
	}
}

// TestCompressedTypedDiffers: if the types of two ranks differ, both get the same error.
func TestCompressedTypedDiffers(t *testing.T) {
	comms := localCluster(t, 2, Config{})
	onAll(t, comms, func(rank int, c *Comm) error {
		var err error
		if rank == 0 {
			err = AllReduceCompressed(t.Context(), c, []int32{1}, Max, compress.None{})
		} else {
			err = AllReduceCompressed(t.Context(), c, []int64{1}, Max, compress.None{})
		}
		if e, ok := errors.AsType[*CompressError](err); !ok || e.Rank != 1 || !errors.Is(err, ErrInvalidType) {
			t.Errorf("rank %d: %v, want a CompressError of rank 1 about its type", rank, err)
		}
		return c.Err()
	})
}
