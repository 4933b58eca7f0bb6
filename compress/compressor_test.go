package compress

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kinds returns new compressors of all types, in several configurations.
func kinds() map[string]Compressor {
	return map[string]Compressor{
		"none":                   None{},
		"top-k 1%":               &TopK{},
		"top-k 30%":              &TopK{Ratio: 0.3},
		"top-k of 3":             &TopK{K: 3},
		"random-k 1%":            &RandomK{Seed: 1},
		"random-k 30%":           &RandomK{Seed: 2, Ratio: 0.3},
		"random-k of 3 unbiased": &RandomK{Seed: 3, K: 3, Unbiased: true},
		"quantize-8":             Quantize8{},
		"quantize-8 by 5":        Quantize8{Block: 5},
		"bfloat16":               Cast16{},
		"float16":                Cast16{Format: Float16},
		"error feedback":         &ErrorFeedback{},
		"error feedback of 8":    &ErrorFeedback{Compressor: Quantize8{Block: 7}},
	}
}

// forEachKind runs f for each compressor of kinds.
func forEachKind(t *testing.T, f func(t *testing.T, c Compressor)) {
	for name, c := range kinds() {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// encode returns the encoding of src.
func encode(t rapid.TB, c Compressor, src []float32) []byte {
	t.Helper()
	encoded, err := c.Append(nil, src)
	if err != nil {
		t.Fatalf("Append of %d elements: %v", len(src), err)
	}
	return encoded
}

// decode returns the encoded vector of n elements, added to zeros.
func decode(t rapid.TB, c Compressor, encoded []byte, n int) []float32 {
	t.Helper()
	dst := make([]float32, n)
	if err := c.AddTo(dst, encoded); err != nil {
		t.Fatalf("AddTo %d elements: %v", n, err)
	}
	return dst
}

// bitsOf returns the bits of the elements, to compare NaNs as well.
func bitsOf(v []float32) []uint32 {
	b := make([]uint32, len(v))
	for i, f := range v {
		b[i] = math.Float32bits(f)
	}
	return b
}

func sameBits(a, b []float32) bool { return slices.Equal(bitsOf(a), bitsOf(b)) }

func isFinite(f float32) bool { return magnitude(f) < infinity32 }

const least32 = math.SmallestNonzeroFloat32

// landmarks returns the limits of the formats and the numbers next to them.
func landmarks() []float32 {
	inf := float32(math.Inf(1))
	marks := []float32{0, least32, 3 * least32, 0x1p-126, 0x1p-126 - least32, 1e-30, 0.1, 1, 1 + 0x1p-23, 2, 3,
		65504, 65519, 65520, 1e30, 0x1.fefffep127, 0x1.ffp127, math.MaxFloat32, inf,
		math.Float32frombits(0x7fc00000), math.Float32frombits(0x7fc01234), math.Float32frombits(0x7fffffff)}
	for _, m := range slices.Clone(marks) {
		marks = append(marks, math.Float32frombits(math.Float32bits(m)|signBit32))
	}
	return marks
}

// anyFloat draws landmarks, ordinary numbers, and arbitrary bits.
func anyFloat() *rapid.Generator[float32] {
	return rapid.OneOf(
		rapid.SampledFrom(landmarks()),
		rapid.Float32Range(-10, 10),
		rapid.Map(rapid.Uint32(), math.Float32frombits),
	)
}

func finiteFloat() *rapid.Generator[float32] { return anyFloat().Filter(isFinite) }

// vectors draws vectors of up to a thousand elements.
func vectors(of *rapid.Generator[float32]) *rapid.Generator[[]float32] {
	return rapid.Custom(func(t *rapid.T) []float32 {
		return rapid.SliceOfN(of, 0, rapid.SampledFrom([]int{1, 2, 20, 300, 1000}).Draw(t, "most")).Draw(t, "elements")
	})
}

// edges returns vectors of special lengths and elements.
func edges() map[string][]float32 {
	repeat := func(v float32, n int) []float32 { return slices.Repeat([]float32{v}, n) }
	negativeZero := float32(math.Copysign(0, -1))
	return map[string][]float32{
		"empty":          {},
		"one":            {3},
		"one zero":       {0},
		"one NaN":        {float32(math.NaN())},
		"zeros":          repeat(0, 700),
		"negative zeros": repeat(negativeZero, 700),
		"equal":          repeat(-2.5, 700),
		"smallest":       repeat(least32, 300),
		"largest":        repeat(math.MaxFloat32, 300),
		"infinities":     repeat(float32(math.Inf(-1)), 300),
		"NaNs":           repeat(float32(math.NaN()), 300),
		"landmarks":      landmarks(),
		"many equal":     repeat(1, 10_000),
		"many zeros":     append(repeat(0, 9_000), 1, 2, 3),
		"many NaNs":      repeat(float32(math.NaN()), 10_000),
	}
}

// checkContract compresses src and checks the contract of Compressor.
func checkContract(t rapid.TB, c Compressor, src []float32) {
	t.Helper()
	before, prefix := bitsOf(src), []byte("before")
	out, err := c.Append(slices.Clone(prefix), src)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	encoded, ok := bytes.CutPrefix(out, prefix)
	if !ok {
		t.Fatalf("Append changed the contents of dst to %q", out[:len(prefix)])
	}
	if !slices.Equal(bitsOf(src), before) {
		t.Fatal("Append changed src")
	}
	if len(encoded) > c.MaxBytes(len(src)) {
		t.Fatalf("Append added %d bytes, MaxBytes(%d) = %d", len(encoded), len(src), c.MaxBytes(len(src)))
	}
	copied := bytes.Clone(encoded)
	decoded := decode(t, c, encoded, len(src))
	dst := make([]float32, len(src))
	want := make([]float32, len(src))
	for i := range dst {
		dst[i] = float32(i%7) - 3
		want[i] = add(dst[i], decoded[i])
	}
	if err := c.AddTo(dst, encoded); err != nil {
		t.Fatalf("second AddTo: %v", err)
	}
	if !sameBits(dst, want) {
		t.Fatalf("AddTo gave %v, want %v", dst, want)
	}
	if !bytes.Equal(encoded, copied) {
		t.Fatal("AddTo changed the encoding")
	}
}

func TestContract(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		rapid.Check(t, func(t *rapid.T) {
			if e, ok := c.(*ErrorFeedback); ok {
				e.Reset()
			}
			checkContract(t, c, vectors(anyFloat()).Draw(t, "src"))
		})
	})
}

func TestContractAtEdges(t *testing.T) {
	for edge, src := range edges() {
		for name, c := range kinds() {
			t.Run(name+" of "+edge, func(t *testing.T) { checkContract(t, c, src) })
		}
	}
}

// TestDecodingNeedsNoConfiguration: a compressor decodes encodings of any configuration, and
// needs no history.
func TestDecodingNeedsNoConfiguration(t *testing.T) {
	src := edges()["landmarks"]
	for name, test := range map[string]struct{ from, by Compressor }{
		"top-k":          {&TopK{K: 7}, &TopK{Ratio: math.NaN()}},
		"random-k":       {&RandomK{Seed: 4, Step: 9, K: 7, Unbiased: true}, &RandomK{K: -1}},
		"quantize-8":     {Quantize8{Block: 3}, Quantize8{Block: -1}},
		"cast-16":        {Cast16{Format: Float16}, Cast16{Format: 99}},
		"error feedback": {&ErrorFeedback{Compressor: &TopK{K: 7}}, &TopK{}},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := encode(t, test.from, src)
			got, want := decode(t, test.by, encoded, len(src)), decode(t, test.from, encoded, len(src))
			if !sameBits(got, want) {
				t.Errorf("a compressor with another configuration decodes %v, want %v", got, want)
			}
		})
	}
}

// TestRanksAgree: concurrent additions of the same encodings have the same result.
func TestRanksAgree(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		var encodings [][]byte
		for rank := range 5 {
			src := slices.Clone(landmarks())
			slices.Reverse(src[:8*rank])
			encodings = append(encodings, encode(t, c, src))
		}
		results := make(chan []float32)
		for range 4 {
			go func() {
				dst := make([]float32, len(landmarks()))
				for _, encoded := range encodings {
					if err := c.AddTo(dst, encoded); err != nil {
						t.Error(err)
					}
				}
				results <- dst
			}()
		}
		first := <-results
		for range 3 {
			if other := <-results; !sameBits(first, other) {
				t.Errorf("results differ: %v and %v", first, other)
			}
		}
	})
}

func TestInvalidConfigurations(t *testing.T) {
	for i, c := range []Compressor{
		&TopK{K: -1}, &TopK{Ratio: -0.5}, &TopK{Ratio: 1.5}, &TopK{Ratio: math.NaN()}, &TopK{Ratio: math.Inf(1)}, &TopK{Ratio: 0.5, K: 2},
		&RandomK{K: -1}, &RandomK{Ratio: -0.5}, &RandomK{Ratio: 1.5}, &RandomK{Ratio: math.NaN()}, &RandomK{Ratio: 0.5, K: 2},
		Quantize8{Block: -1}, Cast16{Format: 2},
		&ErrorFeedback{Compressor: &RandomK{Unbiased: true}}, &ErrorFeedback{Compressor: &ErrorFeedback{}},
		&ErrorFeedback{Compressor: &TopK{K: -1}},
	} {
		t.Run(fmt.Sprintf("%d: %T", i, c), func(t *testing.T) {
			out, err := c.Append([]byte("dst"), []float32{1, 2, 3})
			if !errors.Is(err, ErrConfig) || string(out) != "dst" {
				t.Errorf("Append = %q, %v, want dst unchanged and ErrConfig", out, err)
			}
			if got := c.MaxBytes(3); got < 0 || got > 64 {
				t.Errorf("MaxBytes(3) = %d", got)
			}
		})
	}
}

func TestKept(t *testing.T) {
	for _, test := range []struct {
		k     int
		ratio float64
		n     int
		want  int
	}{
		{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 0, 149, 1}, {0, 0, 150, 2}, {0, 0, 1000, 10},
		{0, 0.07, 100, 7}, {0, 1, 10, 10}, {0, 1e-300, 10, 1}, {0, 0.5, 3, 2},
		{3, 0, 0, 0}, {3, 0, 2, 2}, {3, 0, 3, 3}, {3, 0, 4, 3},
	} {
		if got, err := kindTopK.kept(test.k, test.ratio, test.n); got != test.want || err != nil {
			t.Errorf("K %d, Ratio %v: %d of %d elements kept, want %d (error %v)", test.k, test.ratio, got, test.n, test.want, err)
		}
	}
}

// TestString: the text of a compressor does not depend on its fields.
func TestString(t *testing.T) {
	for want, list := range map[string][]fmt.Stringer{
		"none": {None{}, &ErrorFeedback{Compressor: None{}}}, "top-k": {&TopK{}, &TopK{K: 3}, &ErrorFeedback{}},
		"random-k": {&RandomK{Seed: 1}}, "quantize-8": {Quantize8{Block: 9}}, "cast-16": {Cast16{}, Cast16{Format: Float16}},
		"": {&ErrorFeedback{Compressor: struct{ Compressor }{None{}}}, &ErrorFeedback{Compressor: &ErrorFeedback{}}},
	} {
		for _, c := range list {
			if got := c.String(); got != want {
				t.Errorf("%#v: %q, want %q", c, got, want)
			}
		}
	}
}
