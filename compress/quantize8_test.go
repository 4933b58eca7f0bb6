package compress

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkQuantized checks the decoded vector got against the error bound of Quantize8.
func checkQuantized(t rapid.TB, src, got []float32, block int) {
	t.Helper()
	for from := 0; from < len(src); from += block {
		to := min(from+block, len(src))
		largest := float64(0)
		for _, v := range src[from:to] {
			if isFinite(v) {
				largest = max(largest, math.Abs(float64(v)))
			}
		}
		bound := largest/251 + 0x1p-150
		for i := from; i < to; i++ {
			x, y := float64(src[i]), float64(got[i])
			switch {
			case x != x || math.IsInf(x, 0):
				if y != x && (x == x || y == y) {
					t.Fatalf("element %d, %v, is decoded as %v", i, x, y)
				}
			case !(math.Abs(y-x) <= bound):
				t.Fatalf("element %d, %v, is decoded as %v, error above %v", i, x, y, bound)
			case math.Abs(x) == largest && y != x:
				t.Fatalf("element %d, %v, the largest of its block, is decoded as %v", i, x, y)
			}
		}
	}
}

func TestQuantize8Bound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int{1, 2, 5, 256, 1 << 30}).Draw(t, "block")
		// Elements of one block have similar magnitudes, as in most gradients.
		scale := rapid.SampledFrom([]float32{1e-44, 1e-38, 1e-3, 1, 1e37}).Draw(t, "scale")
		of := rapid.OneOf(anyFloat(), rapid.Map(rapid.Float32Range(-1, 1), func(f float32) float32 { return f * scale }))
		src := vectors(of).Draw(t, "src")
		q := Quantize8{Block: block}
		checkQuantized(t, src, decode(t, q, encode(t, q, src), len(src)), block)
	})
}

func TestQuantize8AtEdges(t *testing.T) {
	for name, src := range edges() {
		t.Run(name, func(t *testing.T) {
			checkQuantized(t, src, decode(t, Quantize8{}, encode(t, Quantize8{}, src), len(src)), defaultBlock)
		})
	}
}

// TestQuantize8Codes: codes are rounded to nearest even, and infinities and NaN have their own.
func TestQuantize8Codes(t *testing.T) {
	inf := float32(math.Inf(1))
	src := []float32{126, -126, 0, 0.5, 1.5, -0.5, -1.5, -2.5, 2.51, inf, -inf, float32(math.NaN())}
	want := []int8{126, -126, 0, 0, 2, 0, -2, -2, 3, 127, -127, -128}
	encoded := encode(t, Quantize8{}, src)
	var got []int8
	for _, c := range encoded[headerBytes+4:] {
		got = append(got, int8(c))
	}
	if !slices.Equal(got, want) {
		t.Errorf("codes of %v are %v, want %v", src, got, want)
	}
}

// TestQuantize8Levels: multiples of the step are exact.
func TestQuantize8Levels(t *testing.T) {
	var src []float32
	for c := -levels; c <= levels; c++ {
		src = append(src, 0.25*float32(c))
	}
	if got := decode(t, Quantize8{}, encode(t, Quantize8{}, src), len(src)); !slices.Equal(got, src) {
		t.Errorf("%v are decoded as %v", src, got)
	}
}

func TestQuantize8Bytes(t *testing.T) {
	for _, test := range []struct{ block, n, want int }{
		{0, 0, 16}, {0, 1, 21}, {0, 256, 276}, {0, 257, 281}, {1, 3, 31}, {2, 3, 27}, {math.MaxInt32, 3, 23},
	} {
		q := Quantize8{Block: test.block}
		if got := len(encode(t, q, make([]float32, test.n))); got != test.want || q.MaxBytes(test.n) != test.want {
			t.Errorf("%d elements in blocks of %d take %d bytes, MaxBytes is %d; want %d", test.n, test.block, got, q.MaxBytes(test.n), test.want)
		}
	}
}
