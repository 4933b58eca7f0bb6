package compress

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// largest are the indices of the k largest magnitudes that are not zero, the
// first of those that are equal. It sorts.
func largest(src []float32, k int) []int {
	order := make([]int, len(src))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return int(magnitude(src[j])) - int(magnitude(src[i])) })
	order = slices.DeleteFunc(order[:k], func(i int) bool { return src[i] == 0 })
	slices.Sort(order)
	return order
}

// chosen are the indices of a choice.
func (c *choice) chosen() (places []int) {
	ties := c.ties
	for i, v := range c.values {
		m := magnitude(v)
		if m > c.least || m == c.least && ties > 0 {
			if m == c.least {
				ties--
			}
			if c.places != nil {
				i = c.places[i]
			}
			places = append(places, i)
		}
	}
	return places
}

func checkSelection(t rapid.TB, s *selection, src []float32, k int) {
	t.Helper()
	c := s.selectLargest(src, k)
	want := largest(src, k)
	if got := c.chosen(); !slices.Equal(got, want) || c.size != len(want) {
		t.Fatalf("the %d largest of %d are %v (%d), want %v", k, len(src), got, c.size, want)
	}
}

func TestSelection(t *testing.T) {
	var s selection
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.SampledFrom([]float32{0, 1, -1, 2, -2, least32})
		src := vectors(rapid.OneOf(anyFloat(), few)).Draw(t, "src")
		checkSelection(t, &s, src, rapid.IntRange(0, len(src)).Draw(t, "k"))
	})
}

// Long vectors are searched by a sample, which some of them mislead.
func TestSelectionOfLongVectors(t *testing.T) {
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
			var s selection
			src := make([]float32, n)
			for i := range src {
				src[i] = f(i)
			}
			for _, k := range []int{0, 1, 2, 10, n / 1000, n / 100, n/sampleStride + 1, n/sampleStride + 2, n/sampleShare - 1, n / sampleShare, n/sampleShare + 1, n / 2, n - 1, n} {
				checkSelection(t, &s, src, k)
			}
		})
	}
}

// The guess is right where it is meant to be: else selection would be slow, and
// nothing else would show it.
func TestSelectionBySample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	src := make([]float32, 1<<17)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	var s selection
	for _, k := range []int{1, 100, len(src) / 100, len(src) / sampleShare} {
		c, ok := s.selectCandidates(src, k)
		if !ok || len(c.values) > 3*k+sampleStride*20 {
			t.Errorf("k = %d: %d candidates, enough and not too many: %v", k, len(c.values), ok)
		}
	}
	// Zeros are no candidates, even where more elements than there are others
	// could be sent.
	clear(src[100:])
	if c, ok := s.selectCandidates(src, len(src)/100); !ok || c.size != 100 {
		t.Errorf("of 100 elements and zeros %d are selected: %v", c.size, ok)
	}
}
