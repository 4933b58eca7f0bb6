package compress

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/device"
	"pgregory.net/rapid"
)

// encode64 returns the encoding of a float64 vector.
func encode64(t rapid.TB, c TypedCompressor, src []float64) []byte {
	t.Helper()
	encoded, err := c.AppendTyped(nil, device.Float64, memory(src))
	if err != nil {
		t.Fatalf("AppendTyped of %d elements: %v", len(src), err)
	}
	return encoded
}

// decode64 returns the decoded vector of n elements.
func decode64(t rapid.TB, c TypedCompressor, encoded []byte, n int) []float64 {
	t.Helper()
	dst := slices.Repeat([]float64{7}, n) // DecodeTyped replaces it
	if err := c.DecodeTyped(memory(dst), device.Float64, encoded); err != nil {
		t.Fatalf("DecodeTyped of %d elements: %v", n, err)
	}
	return dst
}

// anyFloat64 draws limits of the formats, ordinary numbers, and arbitrary bits.
func anyFloat64() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Map(anyFloat(), func(f float32) float64 { return float64(f) }),
		rapid.SampledFrom([]float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 0x1p-1022, -0x1p-1060, 1e300}),
		rapid.Float64Range(-10, 10),
		rapid.Map(rapid.Uint64(), math.Float64frombits),
	)
}

func vectors64() *rapid.Generator[[]float64] { return rapid.SliceOfN(anyFloat64(), 0, 600) }

func bitsOf64(v []float64) []uint64 {
	b := make([]uint64, len(v))
	for i, f := range v {
		b[i] = math.Float64bits(f)
	}
	return b
}

// TestTypedContract checks the contract of TypedCompressor with float64 vectors.
func TestTypedContract(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		typed := c.(TypedCompressor)
		if !typed.Allows(device.Float64, device.Sum) || !typed.Allows(device.Float32, device.Sum) {
			t.Fatal("sums of float32 and float64 are not allowed")
		}
		rapid.Check(t, func(t *rapid.T) {
			if e, ok := c.(*ErrorFeedback); ok {
				e.Reset()
			}
			checkTypedContract(t, typed, vectors64().Draw(t, "src"))
		})
	})
}

func checkTypedContract(t rapid.TB, c TypedCompressor, src []float64) {
	t.Helper()
	before, prefix := bitsOf64(src), []byte("before")
	out, err := c.AppendTyped(slices.Clone(prefix), device.Float64, memory(src))
	if err != nil {
		t.Fatalf("AppendTyped: %v", err)
	}
	encoded, ok := bytes.CutPrefix(out, prefix)
	if !ok || !slices.Equal(bitsOf64(src), before) {
		t.Fatal("AppendTyped changed src or the contents of dst")
	}
	if most := c.MaxTypedBytes(device.Float64, len(src)); len(encoded) > most {
		t.Fatalf("AppendTyped added %d bytes, MaxTypedBytes(%d) = %d", len(encoded), len(src), most)
	}
	decoded := decode64(t, c, encoded, len(src))
	dst, want := make([]float64, len(src)), make([]float64, len(src))
	for i := range dst {
		dst[i] = float64(i%7) - 3
		want[i] = add(dst[i], decoded[i])
	}
	if err := c.AddTyped(memory(dst), device.Float64, encoded); err != nil {
		t.Fatalf("AddTyped: %v", err)
	}
	if !slices.Equal(bitsOf64(dst), bitsOf64(want)) {
		t.Fatalf("AddTyped gave %v, want %v", dst, want)
	}
	for _, invalid := range [][]byte{nil, encoded[:len(encoded)-1], append(bytes.Clone(encoded), 0)} {
		err := errors.Join(c.AddTyped(memory(dst), device.Float64, invalid), c.DecodeTyped(memory(dst), device.Float64, invalid))
		if !errors.Is(err, ErrFormat) || !slices.Equal(bitsOf64(dst), bitsOf64(want)) {
			t.Fatalf("%d of %d bytes: error %v, want ErrFormat and dst unchanged", len(invalid), len(encoded), err)
		}
	}
	if err := c.AddTo(make([]float32, len(src)), encoded); !errors.Is(err, ErrFormat) {
		t.Fatalf("AddTo of a float64 encoding: error %v, want ErrFormat", err)
	}
}

// TestTypedFloat32: AppendTyped of float32 is Append.
func TestTypedFloat32(t *testing.T) {
	other := kinds()
	for name, c := range kinds() {
		typed, src := other[name].(TypedCompressor), sample()
		want := encode(t, c, src)
		got, err := typed.AppendTyped(nil, device.Float32, memory(src))
		if err != nil || !bytes.Equal(got, want) || typed.MaxTypedBytes(device.Float32, len(src)) != c.MaxBytes(len(src)) {
			t.Errorf("%s: %x, error %v, want %x", name, got, err, want)
		}
		dst := make([]float32, len(src))
		if err := typed.AddTyped(memory(dst), device.Float32, got); err != nil || !sameBits(dst, decode(t, c, want, len(src))) {
			t.Errorf("%s: AddTyped gave %v, error %v", name, dst, err)
		}
	}
}

// TestTypesNotAllowed: other types and operations are not allowed, and a vector of such a type
// is an error.
func TestTypesNotAllowed(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		if _, ok := c.(None); ok {
			return
		}
		typed := c.(TypedCompressor)
		for typ := device.Int8; typ.Size() > 0; typ++ {
			isFloat := typ == device.Float32 || typ == device.Float64
			for op := device.Sum; op <= device.BitXor; op++ {
				if got := typed.Allows(typ, op); got != (isFloat && op == device.Sum) {
					t.Errorf("Allows(%v, %v) = %v", typ, op, got)
				}
			}
			if isFloat {
				continue
			}
			out, err := typed.AppendTyped([]byte("dst"), typ, make([]byte, 16))
			if !errors.Is(err, ErrType) || string(out) != "dst" {
				t.Errorf("AppendTyped of %v = %q, %v, want dst unchanged and ErrType", typ, out, err)
			}
		}
	})
}

// TestFloat64Precision: kept elements have all bits of a float64, and the range of it.
func TestFloat64Precision(t *testing.T) {
	src := []float64{1 + 0x1p-50, -1e300, 0x1p-1060, math.Inf(-1)}
	for name, c := range map[string]TypedCompressor{
		"none": None{}, "top-k": &TopK{Ratio: 1}, "random-k": &RandomK{Ratio: 1},
		"quantize-8": Quantize8{Block: 1}, "error feedback": &ErrorFeedback{Compressor: &TopK{Ratio: 1}},
	} {
		if got := decode64(t, c, encode64(t, c, src), len(src)); !slices.Equal(got, src) {
			t.Errorf("%s: %v are decoded as %v", name, src, got)
		}
	}
}

func TestQuantize8Float64Bound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.SampledFrom([]float64{0x1p-1070, 0x1p-1022, 1e-3, 1, 1e307}).Draw(t, "scale")
		src := rapid.SliceOfN(rapid.Map(rapid.Float64Range(-1, 1), func(f float64) float64 { return f * scale }), 1, 300).Draw(t, "src")
		largest := 0.
		for _, x := range src {
			largest = max(largest, math.Abs(x))
		}
		q := Quantize8{Block: len(src)}
		for i, y := range decode64(t, q, encode64(t, q, src), len(src)) {
			x, bound := src[i], largest/251+math.SmallestNonzeroFloat64 // 2^-1075 rounds to 0
			if !(math.Abs(y-x) <= bound) || math.Abs(x) == largest && x != y {
				t.Fatalf("element %d, %v, is decoded as %v, error above %v", i, x, y, bound)
			}
		}
	})
}

// TestCast16RoundsOnce: a float64 slightly above the middle of two BFloat16 numbers is rounded
// up, although its float32 is the middle, which rounds to even.
func TestCast16RoundsOnce(t *testing.T) {
	tiny := 0x1p-40
	for _, test := range []struct {
		format Format
		middle float64 // of even and the next number
		even   float64
		next   float64
	}{
		{BFloat16, 1 + 0x1p-8, 1, 1 + 0x1p-7},
		{Float16, 1 + 0x1p-11, 1, 1 + 0x1p-10},
	} {
		c := Cast16{Format: test.format}
		src := []float64{test.middle, test.middle + tiny, test.middle - tiny, -test.middle - tiny, -test.middle}
		want := []float64{test.even, test.next, test.even, -test.next, -test.even}
		if got := decode64(t, c, encode64(t, c, src), len(src)); !slices.Equal(got, want) {
			t.Errorf("format %d: %v are decoded as %v, want %v", test.format, src, got, want)
		}
	}
	c := Cast16{}
	src := []float64{1e300, -1e300, math.MaxFloat32, 0x1p-300, math.Inf(1), 0x1.fep127}
	want := []float64{math.Inf(1), math.Inf(-1), math.Inf(1), 0, math.Inf(1), 0x1.fep127}
	if got := decode64(t, c, encode64(t, c, src), len(src)); !slices.Equal(got, want) {
		t.Errorf("%v are decoded as %v, want %v", src, got, want)
	}
}

// TestErrorFeedbackFloat64: the residual has the precision of the vector.
func TestErrorFeedbackFloat64(t *testing.T) {
	e := &ErrorFeedback{Compressor: &TopK{K: 1}}
	src := []float64{5, 2 + 0x1p-50}
	for step, want := range [][]float64{{5, 0}, {5, 0}, {0, 6 + 3*0x1p-50}} {
		if got := decode64(t, e, encode64(t, e, src), 2); !slices.Equal(got, want) {
			t.Errorf("step %d sends %v, want %v", step, got, want)
		}
	}
	if _, err := e.AppendTyped(nil, device.Float64, memory(src[:1])); !errors.Is(err, ErrLength) {
		t.Errorf("a shorter vector: error %v, want ErrLength", err)
	}
	if _, err := e.Append(nil, []float32{1, 2}); !errors.Is(err, ErrType) {
		t.Errorf("a float32 vector after float64: error %v, want ErrType", err)
	}
	e.Reset()
	encode(t, e, []float32{1, 2})
	if _, err := e.AppendTyped(nil, device.Float64, memory(src)); !errors.Is(err, ErrType) {
		t.Errorf("a float64 vector after float32: error %v, want ErrType", err)
	}
}

// TestErrorFeedbackOfUntyped: an ErrorFeedback allows float64 only if its Compressor does.
func TestErrorFeedbackOfUntyped(t *testing.T) {
	e := &ErrorFeedback{Compressor: &faulty{Compressor: None{}}}
	_, err := e.AppendTyped(nil, device.Float64, make([]byte, 8))
	if e.Allows(device.Float64, device.Sum) || !e.Allows(device.Float32, device.Sum) || !errors.Is(err, ErrType) {
		t.Errorf("float64 is allowed, or float32 is not, or error %v is not ErrType", err)
	}
}
