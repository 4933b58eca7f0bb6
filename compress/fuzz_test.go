package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// Whatever comes from others either is refused, and then nothing has changed,
// or adds a vector, and then the same one to every vector.
func FuzzAddTo(f *testing.F) {
	for _, c := range kinds() {
		encoded, err := c.Append(nil, sample())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
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
					t.Errorf("%T: error %v, and dst is %v, was %v", c, err, dst, before)
				}
				continue
			}
			if err := c.AddTo(decoded, encoded); err != nil {
				t.Fatalf("%T: accepted and then refused: %v", c, err)
			}
			for i, v := range decoded {
				before[i] = add(before[i], v)
			}
			if !sameBits(dst, before) {
				t.Errorf("%T: %v was added to zeros, and gave %v with halves", c, decoded, dst)
			}
		}
		if !bytes.Equal(encoded, copied) {
			t.Error("AddTo changed the encoding")
		}
	})
}
