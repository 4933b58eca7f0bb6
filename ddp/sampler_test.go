package ddp_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/ddp"
)

// TestSampler: each sample of an epoch is in one batch of one rank, in orders that differ between epochs and seeds.
func TestSampler(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 64, 65, 1000, 1023} {
		for _, size := range []int{1, 2, 3, 7} {
			samplers := make([]*ddp.Sampler, size)
			for rank := range samplers {
				samplers[rank] = newSampler(t, n, 10, 1)
			}
			var orders [][]int
			for range 3 {
				var order []int
				for batch := 0; batch*10 < n; batch++ {
					total := samplers[0].Total()
					var shares []int
					for rank, s := range samplers {
						share := s.Batch(rank, size)
						s.Advance()
						shares = append(shares, len(share))
						order = append(order, share...)
					}
					if sum(shares) != total || slices.Max(shares)-slices.Min(shares) > 1 {
						t.Fatalf("%d samples, batch %d: shares %v of %d", n, batch, shares, total)
					}
				}
				orders = append(orders, order)
				if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, iota(n)) {
					t.Fatalf("%d samples, %d ranks: an epoch has %v", n, size, sorted)
				}
			}
			if n > 60 && (slices.Equal(orders[0], orders[1]) || slices.Equal(orders[0], iota(n))) {
				t.Errorf("%d samples: orders %v and %v", n, orders[0], orders[1])
			}
		}
	}
}

func iota(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func newSampler(t *testing.T, samples, batch int, seed uint64) *ddp.Sampler {
	t.Helper()
	s, err := ddp.NewSampler(samples, batch, seed)
	must(t, err)
	return s
}

// TestSamplerReshards: batches do not depend on the number of ranks, nor on a restart.
func TestSamplerReshards(t *testing.T) {
	whole, parts := newSampler(t, 1000, 64, 5), newSampler(t, 1000, 64, 5)
	for step := range 40 {
		size := 1 + step%5
		var all []int
		for rank := range size {
			all = append(all, parts.Batch(rank, size)...)
		}
		if want := whole.Batch(0, 1); !slices.Equal(all, want) {
			t.Fatalf("step %d: %d ranks have %v, want %v", step, size, all, want)
		}
		whole.Advance()
		at := whole.Position()
		parts = newSampler(t, 1000, 64, 5)
		parts.Seek(at)
	}
}

// TestSamplerOrder: positions and samples of a permutation are not correlated, and neighbors in the order are not neighbors in the data.
func TestSamplerOrder(t *testing.T) {
	const n = 10000
	order := slices.Collect(newSampler(t, n, n, 3).Batches(0, 1))[0]
	near, early := 0, 0
	for i, sample := range order {
		if i > 0 && abs(sample-order[i-1]) < n/100 { // of 2 % of all pairs
			near++
		}
		if i < n/2 && sample < n/2 { // of half of the first half
			early++
		}
	}
	if near > n*3/100 || abs(early-n/4) > n/50 {
		t.Errorf("%d of %d neighbors are near, and %d of the first half are early ones", near, n, early)
	}
}

func abs(x int) int { return max(x, -x) }

func TestSamplerErrors(t *testing.T) {
	for _, p := range [][2]int{{0, 1}, {-1, 1}, {1, 0}} {
		if _, err := ddp.NewSampler(p[0], p[1], 0); !errors.Is(err, ddp.ErrConfig) {
			t.Errorf("%v: %v, want an ErrConfig", p, err)
		}
	}
	s := newSampler(t, 4, 2, 0)
	wantPanic(t, "Seek to sample 4 of epoch 0, of 4 samples", func() { s.Seek(ddp.Position{Used: 4}) })
	wantPanic(t, "Batch of rank 2 of 2", func() { s.Batch(2, 2) })
}
