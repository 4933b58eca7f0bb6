package compress

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/internal/require"
)

// largest returns the indices of the k largest magnitudes by sorting: the first of equal ones,
// and no zeros.
func largest[T float](src []T, k int) []int {
	order := make([]int, len(src))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(magnitude(src[j]), magnitude(src[i])) })
	order = slices.DeleteFunc(order[:k], func(i int) bool { return src[i] == 0 })
	slices.Sort(order)
	return order
}

// chosen returns the indices of a choice.
func (c *choice[T]) chosen() (indices []int) {
	ties := c.ties
	for i, v := range c.values {
		m := magnitude(v)
		if m > c.least || m == c.least && ties > 0 {
			if m == c.least {
				ties--
			}
			if c.indices != nil {
				i = c.indices[i]
			}
			indices = append(indices, i)
		}
	}
	return indices
}

func checkSelection[T float](t rapid.TB, s *selection[T], src []T, k int) {
	t.Helper()
	c := s.selectLargest(src, k)
	want := largest(src, k)
	if got := c.chosen(); !slices.Equal(got, want) || c.size != len(want) {
		t.Fatalf("the %d largest of %d are %v (%d), want %v", k, len(src), got, c.size, want)
	}
}

func TestSelection(t *testing.T) {
	var s selection[float32]
	var s64 selection[float64]
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]float32{0, 1, -1, 2, -2, least32})
		src := vectors(rapid.OneOf(anyFloat(), few)).Draw(t, "src")
		k := rapid.IntRange(0, len(src)).Draw(t, "k")
		checkSelection(t, &s, src, k)
		wide := make([]float64, len(src))
		for i, v := range src { // differs in all of the bits, with equal ones
			wide[i] = float64(v) * math.Exp2(float64(math.Float32bits(v)%4*200)) * (1 + 0x1p-40*float64(math.Float32bits(v)%8))
		}
		checkSelection(t, &s64, wide, k)
	})
}

// TestSelectionOfLongVectors covers selection by sample, also with samples that are not
// representative.
func TestSelectionOfLongVectors(t *testing.T) {
	require.NoRace(t, "it uses one goroutine")
	const n = 3 * sampleMin
	r := rand.New(rand.NewPCG(1, 2))
	vectors := map[string]func(i int) float32{
		"normal":             func(int) float32 { return float32(r.NormFloat64()) },
		"of few values":      func(int) float32 { return float32(r.IntN(5) - 2) },
		"zeros":              func(int) float32 { return 0 },
		"mostly zeros":       func(i int) float32 { return float32(max(0, i%997-990)) },
		"equal":              func(int) float32 { return -1 },
		"rising":             func(i int) float32 { return float32(i) },
		"falling":            func(i int) float32 { return float32(-n + i) },
		"sample too large":   func(i int) float32 { return float32(1 - min(1, i%sampleStride)) },
		"sample much larger": func(i int) float32 { return float32(r.NormFloat64()) + 100*float32(1-min(1, i%sampleStride)) },
		"sample too small":   func(i int) float32 { return float32(r.NormFloat64()) * float32(min(1, i%sampleStride)) },
		"sample and no more": func(i int) float32 { return float32(2 - min(1, i%sampleStride)) },
		"any bits":           func(int) float32 { return landmarks()[r.IntN(len(landmarks()))] },
	}
	for name, f := range vectors {
		t.Run(name, func(t *testing.T) {
			var s selection[float32]
			var s64 selection[float64]
			src, wide := make([]float32, n), make([]float64, n)
			for i := range src {
				src[i] = f(i)
				wide[i] = float64(src[i])
			}
			for _, k := range []int{0, 1, 2, 10, n / 1000, n / 100, n/sampleStride + 1, n/sampleStride + 2, n/sampleShare - 1, n / sampleShare, n/sampleShare + 1, n / 2, n - 1, n} {
				checkSelection(t, &s, src, k)
				checkSelection(t, &s64, wide, k)
			}
		})
	}
}

// TestSelectionBySample: the estimate succeeds for a normal distribution. A wrong one would
// only be slow.
func TestSelectionBySample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	src := make([]float32, 1<<17)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	var s selection[float32]
	for _, k := range []int{1, 100, len(src) / 100, len(src) / sampleShare} {
		c, ok := s.selectBySample(src, k)
		if !ok || len(c.values) > 3*k+sampleStride*20 {
			t.Errorf("k = %d: %d elements (ok %v), want at least k and at most %d", k, len(c.values), ok, 3*k+sampleStride*20)
		}
	}
	// Zeros are not selected, even if fewer than k other elements remain.
	clear(src[100:])
	if c, ok := s.selectBySample(src, len(src)/100); !ok || c.size != 100 {
		t.Errorf("%d elements selected (ok %v), want the 100 that are not zero", c.size, ok)
	}
}
