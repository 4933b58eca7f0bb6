//go:build !race

package compress

import (
	"errors"
	"testing"
)

// Nothing is allocated once a Compressor has its buffers and dst is long
// enough. The race detector allocates by itself, so this is not tested with it.
func TestAllocations(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		src := make([]float32, 20_000)
		for i := range src {
			src[i] = float32(int32(mix(uint64(i)))) // more than 1% of it are alike
		}
		sum := make([]float32, len(src))
		encoded := make([]byte, 0, c.MaxBytes(len(src)))
		var failed error
		allocations := testing.AllocsPerRun(100, func() {
			out, err := c.Append(encoded, src)
			failed = errors.Join(failed, err, c.AddTo(sum, out))
		})
		if failed != nil || allocations != 0 {
			t.Errorf("%v allocations for each Append and AddTo, want none (error %v)", allocations, failed)
		}
	})
}

// A length that was sent is not believed: nothing is made by it, except for the
// error.
func TestRefusalsDoNotAllocate(t *testing.T) {
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
			t.Errorf("%v allocations for a refusal", allocations)
		}
	})
}
