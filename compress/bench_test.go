package compress

import (
	"math/rand/v2"
	"testing"
)

// normal returns a vector that resembles a gradient.
func normal(n int) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, n)
	for i := range src {
		src[i] = float32(r.NormFloat64() * 1e-3)
	}
	return src
}

// benchmark reports rates in bytes of the vector, not of its encoding.
func benchmark(b *testing.B, f func(b *testing.B, c Compressor, src []float32)) {
	src := normal(1 << 20)
	for _, bench := range []struct {
		name string
		c    Compressor
	}{
		{"none", None{}},
		{"top-k=1%", &TopK{}},
		{"top-k=10%", &TopK{Ratio: 0.1}},
		{"top-k=50%", &TopK{Ratio: 0.5}},
		{"random-k=1%", &RandomK{}},
		{"quantize-8", Quantize8{}},
		{"bfloat16", Cast16{}},
		{"float16", Cast16{Format: Float16}},
		{"feedback/top-k=1%", &ErrorFeedback{}},
		{"feedback/quantize-8", &ErrorFeedback{Compressor: Quantize8{}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(src)))
			b.ReportAllocs()
			f(b, bench.c, src)
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	benchmark(b, func(b *testing.B, c Compressor, src []float32) {
		dst := make([]byte, 0, c.MaxBytes(len(src)))
		for b.Loop() {
			encoded, err := c.Append(dst, src)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(4*len(src))/float64(len(encoded)), "times_shorter")
		}
	})
}

func BenchmarkAddTo(b *testing.B) {
	benchmark(b, func(b *testing.B, c Compressor, src []float32) {
		encoded, err := c.Append(nil, src)
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]float32, len(src))
		for b.Loop() {
			if err := c.AddTo(dst, encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}
