package membership

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// isCover reports whether the removed nodes touch all edges.
func isCover(edges [][2]int, removed []int) bool {
	return !slices.ContainsFunc(edges, func(e [2]int) bool {
		return !slices.Contains(removed, e[0]) && !slices.Contains(removed, e[1])
	})
}

// totalOf returns the cost of removing nodes.
func totalOf(costs []cost, removed []int) (sum cost) {
	for _, i := range removed {
		sum = sum.plus(costs[i])
	}
	return sum
}

// exhaustive returns the lowest cost over all sets of nodes.
func exhaustive(costs []cost, edges [][2]int) (least cost) {
	for i := range costs {
		least = least.plus(costs[i])
	}
	near := make([]uint64, len(costs))
	for _, e := range edges {
		near[e[0]] |= 1 << e[1]
		near[e[1]] |= 1 << e[0]
	}
	for kept := range uint64(1) << len(costs) {
		sum, linked := cost{}, true
		for i := range costs {
			if kept>>i&1 == 0 {
				sum = sum.plus(costs[i])
			} else {
				linked = linked && near[i]&kept == 0
			}
		}
		if linked && sum.less(least) {
			least = sum
		}
	}
	return least
}

// randomGraph returns a graph with each edge present at the given probability.
func randomGraph(rng *rand.Rand, n int, p float64) (edges [][2]int) {
	for a := range n {
		for b := range a {
			if rng.Float64() < p {
				edges = append(edges, [2]int{b, a})
			}
		}
	}
	return edges
}

// Up to 16 nodes, the removals are the cheapest ones, for random graphs and costs.
func TestCoverIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for trial := range 400 {
		n := 2 + trial%15
		if trial > 380 {
			n = exactMax
		} else {
			n = min(n, 11)
		}
		costs := make([]cost, n)
		for i := range costs {
			costs[i] = cost{rng.IntN(2), rng.IntN(2), 1, rng.IntN(3), rng.IntN(2), rng.IntN(4), n - i}
		}
		edges := randomGraph(rng, n, []float64{0.1, 0.2, 0.4, 0.8}[trial%4])
		removed := cheapestRemovals(costs, edges)
		if got, want := totalOf(costs, removed), exhaustive(costs, edges); !isCover(edges, removed) || got != want {
			t.Fatalf("trial %d, %d nodes, edges %v: %v are removed at cost %v, want cost %v", trial, n, edges, removed, got, want)
		}
	}
}

// largest returns the size of the largest independent set of the nodes in a mask, by
// another algorithm than the tested one.
func largest(near []uint64, mask uint64) int {
	if mask == 0 {
		return 0
	}
	pick, most := bits.TrailingZeros64(mask), 0
	for rest := mask; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		if d := bits.OnesCount64(near[i] & mask); d > most {
			pick, most = i, d
		}
	}
	with := 1 + largest(near, mask&^(near[pick]|1<<pick))
	if most <= 1 {
		return with // One node of a pair, or a single node, is in some largest set.
	}
	return max(with, largest(near, mask&^(1<<pick)))
}

// Of 24 nodes, at least 95 % of the largest possible number stay, in each of 1,000
// random graphs.
func TestCoverOf24(t *testing.T) {
	const n = 24
	rng := rand.New(rand.NewPCG(2, 2))
	costs := make([]cost, n)
	for i := range costs {
		costs[i] = cost{1}
	}
	optimal := 0
	for trial := range 1000 {
		edges := randomGraph(rng, n, 0.04+0.5*rng.Float64())
		near := make([]uint64, n)
		for _, e := range edges {
			near[e[0]] |= 1 << e[1]
			near[e[1]] |= 1 << e[0]
		}
		removed := cheapestRemovals(costs, edges)
		got, want := n-len(removed), largest(near, 1<<n-1)
		if !isCover(edges, removed) || 100*got < 95*want {
			t.Fatalf("trial %d: %d of at most %d nodes stay", trial, got, want)
		}
		if got == want {
			optimal++
		}
	}
	t.Logf("the largest set in %d of 1000 graphs", optimal)
}

// Hard graphs of hundreds of nodes take less than a second of work, and give the same
// result twice.
func TestCoverIsBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n = 400
	for name, edges := range map[string][][2]int{
		"sparse":          randomGraph(rng, n, 0.01),
		"three neighbors": regular(rng, n, 3),
		"dense":           randomGraph(rng, n, 0.3),
		"all":             randomGraph(rng, n, 1),
		"triangles":       triangles(n),
	} {
		costs := make([]cost, n)
		for i := range costs {
			costs[i] = cost{1, 0, 0, 0, 0, 0, n - i}
		}
		began := time.Now()
		removed := cheapestRemovals(costs, edges)
		took := time.Since(began)
		if !isCover(edges, removed) {
			t.Errorf("%s: an edge stays", name)
		}
		// The work is bounded by a count. This limit has a wide margin for a loaded
		// machine.
		if took > time.Minute {
			t.Errorf("%s: %v", name, took)
		}
		if !slices.Equal(removed, cheapestRemovals(costs, edges)) {
			t.Errorf("%s: the second result differs", name)
		}
		t.Logf("%s: %d of %d stay, %v", name, n-len(removed), n, took)
	}
}

// regular returns a graph of nodes with about the same number of neighbors.
func regular(rng *rand.Rand, n, degree int) (edges [][2]int) {
	for range degree {
		order := rng.Perm(n)
		for i := range order {
			if a, b := order[i], order[(i+1)%n]; a != b {
				edges = append(edges, [2]int{min(a, b), max(a, b)})
			}
		}
	}
	return edges
}

// triangles returns a ring of triangles, each linked to the next.
func triangles(n int) (edges [][2]int) {
	for i := 0; i+2 < n; i += 3 {
		edges = append(edges, [2]int{i, i + 1}, [2]int{i + 1, i + 2}, [2]int{i, i + 2})
		if i+3 < n {
			edges = append(edges, [2]int{i + 2, i + 3})
		}
	}
	return edges
}
