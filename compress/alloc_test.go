//go:build !race

package compress

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// TestAllocations: a compressor allocates nothing once it has its buffers, if dst is long
// enough. The race detector allocates, so this file is not built with it.
func TestAllocations(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		src := make([]float32, 20_000)
		for i := range src {
			src[i] = float32(int32(mix(uint64(i)))) // with equal magnitudes among the largest
		}
		sum := make([]float32, len(src))
		encoded := make([]byte, 0, c.MaxBytes(len(src)))
		var failed error
		allocations := testing.AllocsPerRun(100, func() {
			out, err := c.Append(encoded, src)
			failed = errors.Join(failed, err, c.AddTo(sum, out))
		})
		if failed != nil || allocations != 0 {
			t.Errorf("%v allocations per Append and AddTo, want none (error %v)", allocations, failed)
		}
	})
}

func TestTypedAllocations(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		typed, src := c.(TypedCompressor), make([]float64, 20_000)
		for i := range src {
			src[i] = float64(int64(mix(uint64(i))))
		}
		sum := make([]float64, len(src))
		encoded := make([]byte, 0, typed.MaxTypedBytes(device.Float64, len(src)))
		var failed error
		allocations := testing.AllocsPerRun(100, func() {
			out, err := typed.AppendTyped(encoded, device.Float64, memory(src))
			failed = errors.Join(failed, err,
				typed.AddTyped(memory(sum), device.Float64, out), typed.DecodeTyped(memory(sum), device.Float64, out))
		})
		if failed != nil || allocations != 0 {
			t.Errorf("%v allocations per AppendTyped, AddTyped and DecodeTyped, want none (error %v)", allocations, failed)
		}
	})
}

// TestInvalidLengthsDoNotAllocate: the decoder allocates nothing but the error for an invalid
// length.
func TestInvalidLengthsDoNotAllocate(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		src := make([]float32, 20_000)
		for i := range src {
			src[i] = float32(i)
		}
		encoded := encode(t, c, src)
		for i := countOffset; i < headerBytes-1; i++ {
			encoded[i] = 0xff
		}
		sum := make([]float32, len(src))
		if allocations := testing.AllocsPerRun(100, func() { _ = c.AddTo(sum, encoded) }); allocations > 6 {
			t.Errorf("%v allocations for an invalid length, want at most 6", allocations)
		}
	})
}
