package compress

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTopKKeepsTheLargest: the decoded vector has the largest elements unchanged, and zeros.
func TestTopKKeepsTheLargest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := vectors(anyFloat()).Draw(t, "src")
		k := rapid.IntRange(1, 1100).Draw(t, "k")
		want := make([]float32, len(src))
		for _, i := range largest(src, min(k, len(src))) {
			want[i] = add(0, src[i])
		}
		c := &TopK{K: k}
		if got := decode(t, c, encode(t, c, src), len(src)); !sameBits(got, want) {
			t.Fatalf("%v are decoded as %v, want %v", src, got, want)
		}
	})
}

func TestTopK(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, test := range map[string]struct {
		k         int
		src, want []float32
	}{
		"the largest":                {2, []float32{1, -5, 2, 3}, []float32{0, -5, 0, 3}},
		"all":                        {9, []float32{1, -5, 2, 3}, []float32{1, -5, 2, 3}},
		"the first of equal ones":    {2, []float32{1, -2, 2, 2}, []float32{0, -2, 2, 0}},
		"infinity before the finite": {1, []float32{math.MaxFloat32, -inf, 1}, []float32{0, -inf, 0}},
		"NaN before infinity":        {1, []float32{inf, nan, -inf}, []float32{0, nan, 0}},
		"one of many NaNs":           {1, []float32{0, nan, nan, nan}, []float32{0, nan, 0, 0}},
		"a subnormal before zero":    {1, []float32{0, 0, -least32}, []float32{0, 0, -least32}},
		"zeros":                      {2, []float32{0, 0, 0}, []float32{0, 0, 0}},
		"empty":                      {2, []float32{}, []float32{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &TopK{K: test.k}
			if got := decode(t, c, encode(t, c, test.src), len(test.src)); !slices.EqualFunc(got, test.want, func(a, b float32) bool {
				return a == b || a != a && b != b
			}) {
				t.Errorf("%v are decoded as %v, want %v", test.src, got, test.want)
			}
		})
	}
}

// TestTopKBytes: zeros are not sent, and a gap takes as few bytes as possible.
func TestTopKBytes(t *testing.T) {
	far := func(at ...int) []float32 {
		src := make([]float32, 1<<15)
		for _, i := range at {
			src[i] = 1
		}
		return src
	}
	const none = headerBytes + topKFixed
	for name, test := range map[string]struct {
		src  []float32
		want int
	}{
		"zeros":         {far(), none},
		"at the front":  {far(0, 1, 2), none + 3*5},
		"one byte":      {far(127), none + 5},
		"two bytes":     {far(128), none + 6},
		"from the last": {far(128, 128+127+1), none + 6 + 5},
		"far on":        {far(128, 128+128+1), none + 6 + 6},
		"three bytes":   {far(1 << 14), none + 7},
	} {
		t.Run(name, func(t *testing.T) {
			c := &TopK{Ratio: 1}
			if got := len(encode(t, c, test.src)); got != test.want {
				t.Errorf("%d bytes, want %d", got, test.want)
			}
		})
	}
}

// TestTopKMaxBytes: MaxBytes bounds the encoding of any indices, and is close to the maximum.
func TestTopKMaxBytes(t *testing.T) {
	for _, n := range []int{1, 127, 128, 129, 1000, 1 << 14, 1<<14 + 1, 100_000} {
		for _, k := range []int{1, 2, n / 129, n / 2, n} {
			if k == 0 {
				continue
			}
			c, src := &TopK{K: k}, make([]float32, n)
			for i := range min(k, n) {
				src[min(128+i*129, n-1-i)] = 1
			}
			got, bound := len(encode(t, c, src)), c.MaxBytes(n)
			if got > bound {
				t.Errorf("%d of %d elements take %d bytes, MaxBytes is %d", k, n, got, bound)
			}
			if most := headerBytes + topKFixed + k*7; bound > most {
				t.Errorf("%d of %d elements: MaxBytes is %d, want at most %d", k, n, bound, most)
			}
		}
	}
}

// TestTopKForManyTensors: reused buffers do not affect the encoding.
func TestTopKForManyTensors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := &TopK{Ratio: 0.05}
		for range 3 {
			n := rapid.SampledFrom([]int{1, 100, sampleMin, 2 * sampleMin}).Draw(t, "n")
			src := make([]float32, n)
			for i, seed := 0, rapid.Uint64().Draw(t, "seed"); i < n; i++ {
				src[i] = float32(int64(mix(seed+uint64(i)))) * 0x1p-63
			}
			got, want := encode(t, shared, src), encode(t, &TopK{Ratio: 0.05}, src)
			if !slices.Equal(got, want) {
				t.Fatalf("a reused TopK encodes %d elements differently from a new one", n)
			}
		}
	})
}
