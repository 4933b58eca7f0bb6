package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// FuzzAddTo: arbitrary bytes either are an ErrFormat and leave dst unchanged, or add the same
// vector to every dst.
func FuzzAddTo(f *testing.F) {
	for _, c := range kinds() {
		encoded, err := c.Append(nil, sample())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
		src := make([]float64, len(sample()))
		for i, v := range sample() {
			src[i] = float64(v)
		}
		if e, ok := c.(*ErrorFeedback); ok {
			e.Reset()
		}
		f.Add(encode64(f, c.(TypedCompressor), src))
	}
	all := []Compressor{None{}, &TopK{}, &RandomK{}, Quantize8{}, Cast16{}, &ErrorFeedback{}}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		n := len(sample())
		if len(encoded) >= headerBytes {
			n = int(min(binary.LittleEndian.Uint64(encoded[countOffset:]), 1<<12))
		}
		copied := bytes.Clone(encoded)
		for _, c := range all {
			decoded, dst := make([]float32, n), slices.Repeat([]float32{0.5}, n)
			before := slices.Clone(dst)
			err := c.AddTo(dst, encoded)
			if err != nil {
				if !errors.Is(err, ErrFormat) || !sameBits(dst, before) {
					t.Errorf("%T: error %v, dst changed from %v to %v", c, err, before, dst)
				}
				continue
			}
			if err := c.AddTo(decoded, encoded); err != nil {
				t.Fatalf("%T: second AddTo of a valid encoding: %v", c, err)
			}
			for i, v := range decoded {
				before[i] = add(before[i], v)
			}
			if !sameBits(dst, before) {
				t.Errorf("%T: added %v to zeros, and the sum with 0.5 is %v", c, decoded, dst)
			}
		}
		for _, c := range all {
			fuzzTyped(t, c.(TypedCompressor), encoded, min(n, 1<<10))
		}
		if !bytes.Equal(encoded, copied) {
			t.Error("AddTo changed the encoding")
		}
	})
}

// fuzzTyped is FuzzAddTo for float64 vectors.
func fuzzTyped(t *testing.T, c TypedCompressor, encoded []byte, n int) {
	decoded, dst := slices.Repeat([]float64{3}, n), slices.Repeat([]float64{0.5}, n)
	before := slices.Clone(dst)
	if err := c.AddTyped(memory(dst), device.Float64, encoded); err != nil {
		if !errors.Is(err, ErrFormat) || !slices.Equal(bitsOf64(dst), bitsOf64(before)) {
			t.Errorf("%T: error %v, dst changed from %v to %v", c, err, before, dst)
		}
		return
	}
	if err := c.DecodeTyped(memory(decoded), device.Float64, encoded); err != nil {
		t.Fatalf("%T: DecodeTyped after AddTyped: %v", c, err)
	}
	for i, v := range decoded {
		before[i] = add(before[i], v)
	}
	if !slices.Equal(bitsOf64(dst), bitsOf64(before)) {
		t.Errorf("%T: decoded %v, and the sum with 0.5 is %v", c, decoded, dst)
	}
}
