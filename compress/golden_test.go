package compress

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// golden returns encodings that must not change unless version does.
func golden() []struct {
	name string
	c    Compressor
	src  []float32
	want string
} {
	inf := float32(math.Inf(1))
	return []struct {
		name string
		c    Compressor
		src  []float32
		want string
	}{
		{"none", None{}, []float32{1, -2.5},
			"01 01 0000 00000000 0200000000000000 0000803f 000020c0"},
		{"top-k", &TopK{K: 2}, []float32{1, 3, 0, 2, -3},
			"01 02 0000 00000000 0500000000000000 0200000000000000 00004040 000040c0 01 02"},
		{"random-k", &RandomK{Seed: 0x0102, Step: 3, K: 2}, []float32{1, 2, 3, 4, 5},
			"01 03 0000 00000000 0500000000000000 0201000000000000 0300000000000000 0200000000000000 00000040 0000803f"},
		{"random-k unbiased", &RandomK{K: 3, Unbiased: true}, []float32{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7},
			"01 03 0000 00000000 0700000000000000 0000000000000000 0000000000000000 0300000000000000 3433333f 5555953f efee6e3e"},
		{"quantize-8", Quantize8{Block: 3}, []float32{1, -2, inf, 126},
			"01 04 0000 03000000 0400000000000000 00000040 3f 82 7f 0000fc42 7e"},
		{"bfloat16", Cast16{}, []float32{1, -2.5},
			"01 05 0000 00000000 0200000000000000 803f 20c0"},
		{"float16", Cast16{Format: Float16}, []float32{1, -2.5},
			"01 05 0000 01000000 0200000000000000 003c 00c1"},
		{"error feedback", &ErrorFeedback{Compressor: &TopK{K: 1}}, []float32{1, 3},
			"01 02 0000 00000000 0200000000000000 0100000000000000 00004040 01"},
	}
}

// TestGolden: all machines encode these vectors to the same bytes.
func TestGolden(t *testing.T) {
	for _, test := range golden() {
		t.Run(test.name, func(t *testing.T) {
			want := strings.ReplaceAll(test.want, " ", "")
			if got := hex.EncodeToString(encode(t, test.c, test.src)); got != want {
				t.Errorf("%v is encoded as\n%s, want\n%s", test.src, got, want)
			}
		})
	}
}

// TestGoldenFloat64 is TestGolden for float64 vectors.
func TestGoldenFloat64(t *testing.T) {
	for _, test := range []struct {
		name string
		c    TypedCompressor
		src  []float64
		want string
	}{
		{"none", None{}, []float64{1, -2.5},
			"01 01 0a00 00000000 0200000000000000 000000000000f03f 00000000000004c0"},
		{"top-k", &TopK{K: 2}, []float64{1, 3, 0, 2, -3},
			"01 02 0a00 00000000 0500000000000000 0200000000000000 0000000000000840 00000000000008c0 01 02"},
		{"random-k", &RandomK{Seed: 0x0102, Step: 3, K: 2}, []float64{1, 2, 3, 4, 5},
			"01 03 0a00 00000000 0500000000000000 0201000000000000 0300000000000000 0200000000000000 0000000000000040 000000000000f03f"},
		{"quantize-8", Quantize8{Block: 3}, []float64{1, -2, math.Inf(1), 126},
			"01 04 0a00 03000000 0400000000000000 0000000000000040 3f 82 7f 0000000000805f40 7e"},
		{"bfloat16", Cast16{}, []float64{1, -2.5},
			"01 05 0a00 00000000 0200000000000000 803f 20c0"},
		{"error feedback", &ErrorFeedback{Compressor: &TopK{K: 1}}, []float64{1, 3},
			"01 02 0a00 00000000 0200000000000000 0100000000000000 0000000000000840 01"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := strings.ReplaceAll(test.want, " ", "")
			if got := hex.EncodeToString(encode64(t, test.c, test.src)); got != want {
				t.Errorf("%v is encoded as\n%s, want\n%s", test.src, got, want)
			}
		})
	}
}
