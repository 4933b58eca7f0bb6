package compress

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lossy returns the compressors for ErrorFeedback, each with whether its residual is exact.
func lossy() map[string]struct {
	c     Compressor
	exact bool
} {
	return map[string]struct {
		c     Compressor
		exact bool
	}{
		"none":       {None{}, true},
		"top-k":      {&TopK{Ratio: 0.1}, true},
		"random-k":   {&RandomK{Ratio: 0.1}, true},
		"bfloat16":   {Cast16{}, true},
		"float16":    {Cast16{Format: Float16}, true},
		"quantize-8": {Quantize8{Block: 16}, false},
	}
}

// TestResidual: the residual is the error of the encoding.
func TestResidual(t *testing.T) {
	for name, test := range lossy() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.SampledFrom([]int{0, 1, 7, 100}).Draw(t, "n")
				e := &ErrorFeedback{Compressor: test.c}
				for range 4 {
					src := rapid.SliceOfN(anyFloat(), n, n).Draw(t, "src")
					checkResidual(t, e, src, test.exact)
				}
			})
		})
	}
}

// checkResidual encodes src and checks the residual.
func checkResidual(t rapid.TB, e *ErrorFeedback, src []float32, exact bool) {
	t.Helper()
	before, whole := bitsOf(src), slices.Clone(src)
	for i := range e.residual {
		whole[i] = add(src[i], e.residual[i])
	}
	decoded := decode(t, e, encode(t, e, src), len(src))
	if !slices.Equal(bitsOf(src), before) {
		t.Fatal("Append changed src")
	}
	for i, kept := range e.residual {
		x, y := whole[i], decoded[i]
		switch {
		case !isFinite(x) || !isFinite(y):
			if kept != 0 {
				t.Fatalf("element %d: %v sent as %v, residual %v, want 0", i, x, y, kept)
			}
		case kept != x-y:
			t.Fatalf("element %d: %v sent as %v, residual %v, want %v", i, x, y, kept, x-y)
		case exact && float64(y)+float64(kept) != float64(x):
			t.Fatalf("element %d: %v sent as %v, and the residual %v is not exact", i, x, y, kept)
		}
	}
}

// TestNothingIsLostOverTime: for integers, which no sum rounds, the decoded vectors of all
// steps plus the last residual equal the sum of the vectors.
func TestNothingIsLostOverTime(t *testing.T) {
	for name, test := range lossy() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				const n = 50
				e := &ErrorFeedback{Compressor: test.c}
				given, sent := make([]float64, n), make([]float64, n)
				for range 30 {
					src := make([]float32, n)
					for i := range src {
						src[i] = float32(rapid.IntRange(-100, 100).Draw(t, "element"))
						given[i] += float64(src[i])
					}
					for i, v := range decode(t, e, encode(t, e, src), n) {
						sent[i] += float64(v)
					}
				}
				for i, kept := range e.residual {
					if difference := given[i] - (sent[i] + float64(kept)); math.Abs(difference) > 1e-3 || test.exact && difference != 0 {
						t.Fatalf("element %d: sum %v, sent %v, residual %v", i, given[i], sent[i], kept)
					}
				}
			})
		})
	}
}

// TestSmallElementsArriveLater: a small element accumulates in the residual until it is sent.
func TestSmallElementsArriveLater(t *testing.T) {
	e := &ErrorFeedback{Compressor: &TopK{K: 1}}
	src := []float32{5, 2}
	for step, want := range [][]float32{{5, 0}, {5, 0}, {0, 6}, {10, 0}, {5, 0}} {
		if got := decode(t, e, encode(t, e, src), 2); !slices.Equal(got, want) {
			t.Errorf("step %d sends %v, want %v", step, got, want)
		}
	}
}

// TestResidualRecovers: infinities, NaNs and sums that overflow leave nothing in the residual.
func TestResidualRecovers(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, test := range lossy() {
		t.Run(name, func(t *testing.T) {
			for _, bad := range [][]float32{{1, nan, 2}, {nan, nan, nan}, {inf, -inf, 1}, {math.MaxFloat32, -math.MaxFloat32, 1}} {
				e := &ErrorFeedback{Compressor: test.c}
				encode(t, e, bad)
				encode(t, e, bad)
				for range 100 {
					encode(t, e, []float32{0, 0, 0})
				}
				ones := []float32{1, 1, 1}
				for range 100 {
					for i, v := range decode(t, e, encode(t, e, ones), 3) {
						if !isFinite(v) {
							t.Fatalf("after %v, element %d is %v, want a finite number", bad, i, v)
						}
					}
				}
			}
		})
	}
}

func TestErrorFeedbackOtherLength(t *testing.T) {
	e := &ErrorFeedback{Compressor: &TopK{K: 1}}
	encode(t, e, []float32{5, 2})
	for _, src := range [][]float32{nil, {1}, {1, 2, 3}} {
		out, err := e.Append([]byte("dst"), src)
		if !errors.Is(err, ErrLength) || string(out) != "dst" {
			t.Errorf("Append of %d elements after 2 = %q, %v, want dst unchanged and ErrLength", len(src), out, err)
		}
	}
	if want := []float32{0, 2}; !slices.Equal(e.residual, want) {
		t.Errorf("residual %v, want %v unchanged", e.residual, want)
	}
	e.Reset()
	if got, want := decode(t, e, encode(t, e, []float32{1, 3, 2}), 3), []float32{0, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("sent %v after Reset, want %v", got, want)
	}
	empty := &ErrorFeedback{}
	encode(t, empty, nil)
	if _, err := empty.Append(nil, []float32{1}); !errors.Is(err, ErrLength) {
		t.Errorf("a vector of 1 element after an empty one: error %v, want ErrLength", err)
	}
}

// A faulty compressor returns the errors that are set.
type faulty struct {
	Compressor
	append, addTo error
}

func (f *faulty) Append(dst []byte, src []float32) ([]byte, error) {
	if f.append != nil {
		return dst, f.append
	}
	return f.Compressor.Append(dst, src)
}

func (f *faulty) AddTo(dst []float32, encoded []byte) error {
	if f.addTo != nil {
		return f.addTo
	}
	return f.Compressor.AddTo(dst, encoded)
}

func TestErrorFeedbackPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	f := &faulty{Compressor: &TopK{K: 1}}
	e := &ErrorFeedback{Compressor: f}
	for name, fail := range map[string]func(error){
		"Append": func(err error) { f.append = err },
		"AddTo":  func(err error) { f.addTo = err },
	} {
		e.Reset()
		encode(t, e, []float32{5, 2})
		fail(broken)
		if out, err := e.Append([]byte("dst"), []float32{5, 2}); !errors.Is(err, broken) || string(out) != "dst" {
			t.Errorf("%s fails: Append = %q, %v, want dst unchanged and the error", name, out, err)
		}
		fail(nil)
		if got, want := decode(t, e, encode(t, e, []float32{1, 1.5}), 2), []float32{0, 1.5}; !slices.Equal(got, want) {
			t.Errorf("sent %v after a failed %s, want %v, without a residual", got, name, want)
		}
	}
}

func TestErrorFeedbackDefault(t *testing.T) {
	src := make([]float32, 300)
	for i := range src {
		src[i] = float32(i)
	}
	got := encode(t, &ErrorFeedback{}, src)
	if want := encode(t, &TopK{}, src); !slices.Equal(got, want) {
		t.Errorf("the default encodes as %x, want %x as TopK does", got, want)
	}
	if got, want := (&ErrorFeedback{}).MaxBytes(300), (&TopK{}).MaxBytes(300); got != want {
		t.Errorf("MaxBytes(300) = %d, want %d", got, want)
	}
}

func TestAddToLeavesResidualAlone(t *testing.T) {
	e := &ErrorFeedback{Compressor: &TopK{K: 1}}
	encoded := encode(t, e, []float32{5, 2})
	before := slices.Clone(e.residual)
	decode(t, e, encoded, 2)
	if !slices.Equal(e.residual, before) {
		t.Errorf("AddTo changed the residual from %v to %v", before, e.residual)
	}
	if err := (&ErrorFeedback{Compressor: &ErrorFeedback{}}).AddTo(make([]float32, 2), encoded); !errors.Is(err, ErrConfig) {
		t.Errorf("AddTo of nested ErrorFeedbacks: error %v, want ErrConfig", err)
	}
}
