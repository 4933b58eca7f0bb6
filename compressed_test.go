package nexar

import (
	"errors"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/compress"
)

// TestNoticesThatLie: an encoding with less than no bytes, or more than it may have, is
// refused before anything is allocated for it.
func TestNoticesThatLie(t *testing.T) {
	first := &notice{Elements: 100, Bytes: 10, Room: 20}
	for _, n := range []notice{{Elements: 100, Bytes: -1 << 40, Room: 20}, {Elements: 100, Bytes: 21, Room: 20}, {Elements: 100, Bytes: -1, Room: -1}} {
		if err := n.refused(first); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v, want ErrTooLarge", n, err)
		}
	}
	if err := first.refused(first); err != nil {
		t.Error(err)
	}
}

// None keeps every type and takes every operation: results are those of AllReduce.
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
	t.Run("nothing", func(t *testing.T) { testCompressedTyped(t, []uint8{}, []uint8{}, Max) })
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

// Ranks whose vectors have other types, or other operations, all get the same error.
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
