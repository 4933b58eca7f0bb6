package compress

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func indices(d draw, k int) []int {
	all := make([]int, k)
	for i := range all {
		all[i] = d.next()
	}
	return all
}

func TestDrawIsDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 2000).Draw(t, "n")
		k := rapid.IntRange(1, n).Draw(t, "k")
		got := indices(newDraw(rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "step"), k, n), k)
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != k || sorted[0] < 0 || sorted[k-1] >= n {
			t.Fatalf("draw of %d of %d is %v, want distinct indices", k, n, got)
		}
		falls := 0
		for i := 1; i < k; i++ {
			if got[i] < got[i-1] {
				falls++
			}
		}
		if falls > 1 {
			t.Fatalf("draw of %d of %d descends more than once: %v", k, n, got)
		}
	})
}

// TestDrawIsUniform: each index is drawn with probability k/n, also if k does not divide n. The
// bound is five standard deviations; the seed is fixed.
func TestDrawIsUniform(t *testing.T) {
	const draws = 40_000
	for _, test := range []struct{ k, n int }{{1, 2}, {1, 10}, {3, 10}, {5, 7}, {6, 7}, {7, 7}, {4, 64}} {
		counts := make([]int, test.n)
		for step := range uint64(draws) {
			for _, i := range indices(newDraw(42, step, test.k, test.n), test.k) {
				counts[i]++
			}
		}
		p := float64(test.k) / float64(test.n)
		bound := 5 * math.Sqrt(draws*p*(1-p))
		for i, count := range counts {
			if math.Abs(float64(count)-draws*p) > bound {
				t.Errorf("%d of %d: index %d drawn %d times in %d draws, want %.0f±%.0f", test.k, test.n, i, count, draws, draws*p, bound)
			}
		}
	}
}

// TestGoldenDraws: the indices are part of the format, the same on all machines and in all
// versions.
func TestGoldenDraws(t *testing.T) {
	for _, test := range []struct {
		seed, step uint64
		want       []int
	}{
		{0, 0, []int{376, 518, 691, 851, 971, 65, 224}},
		{0, 1, []int{34, 209, 374, 492, 719, 769, 908}},
		{1, 0, []int{492, 651, 833, 884, 23, 255, 343}},
		{1<<64 - 1, 1<<64 - 1, []int{124, 274, 451, 562, 709, 748, 973}},
	} {
		if got := indices(newDraw(test.seed, test.step, 7, 1000), 7); !slices.Equal(got, test.want) {
			t.Errorf("seed %d, step %d: %v, want %v", test.seed, test.step, got, test.want)
		}
	}
}

// TestRandomKRanksAgree: two ranks choose the same elements in a step, and others in each step.
func TestRandomKRanksAgree(t *testing.T) {
	a, b := &RandomK{Seed: 5, Ratio: 0.1}, &RandomK{Seed: 5, Ratio: 0.1}
	ones, twos := slices.Repeat([]float32{1}, 500), slices.Repeat([]float32{2}, 500)
	var before []float32
	for step := range uint64(10) {
		if a.Step != step || b.Step != step {
			t.Fatalf("Step is %d and %d, want %d", a.Step, b.Step, step)
		}
		dst := decode(t, a, encode(t, a, ones), len(ones))
		first := slices.Clone(dst)
		if err := a.AddTo(dst, encode(t, b, twos)); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for i, v := range dst {
			if v != 0 && v != 3 {
				t.Fatalf("step %d: element %d is %v: the ranks chose different elements", step, i, v)
			}
			if v == 3 {
				kept++
			}
		}
		if kept != 50 {
			t.Fatalf("step %d: %d elements kept, want 50", step, kept)
		}
		if slices.Equal(first, before) {
			t.Fatalf("step %d: same choice as in the step before", step)
		}
		before = first
	}
	a.Step, b.Step = 3, 3
	if !bytes.Equal(encode(t, a, ones), encode(t, b, ones)) {
		t.Error("encodings of the same step differ")
	}
}

func TestRandomKKeepsStepOnError(t *testing.T) {
	r := &RandomK{Step: 7, K: -1}
	if _, err := r.Append(nil, []float32{1}); err == nil || r.Step != 7 {
		t.Errorf("after error %v Step is %d, want 7", err, r.Step)
	}
	r.K = 1
	if encode(t, r, nil); r.Step != 8 {
		t.Errorf("after an empty vector Step is %d, want 8", r.Step)
	}
}

// TestRandomKValues: kept values are those of src, multiplied by n/k if Unbiased.
func TestRandomKValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := vectors(anyFloat()).Draw(t, "src")
		k := rapid.IntRange(1, 1100).Draw(t, "k")
		step := rapid.Uint64().Draw(t, "step")
		plain, unbiased := &RandomK{Step: step, K: k}, &RandomK{Step: step, K: k, Unbiased: true}
		got := decode(t, plain, encode(t, plain, src), len(src))
		scaled := decode(t, unbiased, encode(t, unbiased, src), len(src))
		k = min(k, len(src))
		chosen := indices(newDraw(0, step, k, len(src)), k)
		for i, v := range src {
			want, wantScaled := float32(0), float32(0)
			if slices.Contains(chosen, i) {
				want, wantScaled = add(0, v), add(0, float32(float64(v)*(float64(len(src))/float64(k))))
			}
			if !sameBits([]float32{got[i], scaled[i]}, []float32{want, wantScaled}) {
				t.Fatalf("element %d of %d, %v, is decoded as %v, and %v unbiased; want %v and %v", i, len(src), v, got[i], scaled[i], want, wantScaled)
			}
		}
	})
}

// TestRandomKUnbiased: the mean of many encodings is the vector.
func TestRandomKUnbiased(t *testing.T) {
	const draws = 20_000
	src := []float32{1, -2, 3, 40, -0.5, 6, 7}
	r := &RandomK{Seed: 9, K: 3, Unbiased: true}
	sum := make([]float64, len(src))
	for range draws {
		for i, v := range decode(t, r, encode(t, r, src), len(src)) {
			sum[i] += float64(v)
		}
	}
	for i, v := range src {
		// An element x is x·n/k with probability k/n, and else 0.
		deviation := math.Abs(float64(v)) * math.Sqrt((7./3-1)/draws)
		if mean := sum[i] / draws; math.Abs(mean-float64(v)) > 5*deviation {
			t.Errorf("element %d, %v, has mean %v", i, v, mean)
		}
	}
}
