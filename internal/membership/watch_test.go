package membership

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestWatchedOfEverySize(t *testing.T) {
	for n := range 300 {
		v := View{Nodes: make([]Node, n)}
		for _, k := range []int{0, 1, 2, 3, 6, 7, 20} {
			checkWatched(t, v, k)
		}
	}
}

func checkWatched(t *testing.T, v View, k int) {
	t.Helper()
	n, want := v.Size(), k
	if k == 0 {
		want = 6
	}
	want = max(0, min(want, n-1))
	watchers := make([][]int, n)
	for r := range n {
		w := Watched(v, r, k)
		if len(w) != want || slices.Contains(w, r) || len(slices.Compact(slices.Clone(w))) != want {
			t.Fatalf("n=%d k=%d: rank %d watches %v, want %d others", n, k, r, w, want)
		}
		for _, x := range w {
			if x < 0 || x >= n {
				t.Fatalf("n=%d k=%d: rank %d watches %v", n, k, r, w)
			}
			watchers[x] = append(watchers[x], r)
		}
	}
	for r := range n {
		if got := Watchers(v, r, k); !slices.Equal(got, watchers[r]) || len(got) != want {
			t.Fatalf("n=%d k=%d: rank %d is watched by %v, want %v", n, k, r, got, watchers[r])
		}
	}
}

// A report spreads along the graph from any rank to any other within a few hops.
func TestWatchedDiameter(t *testing.T) {
	for _, test := range []struct{ n, hops int }{{2, 1}, {7, 1}, {8, 2}, {64, 6}, {1000, 13}, {4096, 18}} {
		v := View{Nodes: make([]Node, test.n)}
		if got := eccentricity(v, nil); got > test.hops || got < 0 {
			t.Errorf("%d nodes: %d hops, want at most %d", test.n, got, test.hops)
		}
	}
}

// If any five nodes fail at once, the remaining graph is connected, and each failed
// node has a live watcher.
func TestWatchedSurvivesFiveFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(7, 200).Draw(t, "n")
		dead := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 5, 5, rapid.ID[int]).Draw(t, "dead")
		v := View{Nodes: make([]Node, n)}
		if eccentricity(v, dead) < 0 {
			t.Fatalf("n=%d: the graph without %v is not connected", n, dead)
		}
		for _, d := range dead {
			if !slices.ContainsFunc(Watchers(v, d, 0), func(w int) bool { return !slices.Contains(dead, w) }) {
				t.Fatalf("n=%d: no live node watches %d", n, d)
			}
		}
	})
}

// eccentricity returns the number of hops of a report from the first live rank to all
// others, or -1 if it does not reach all.
func eccentricity(v View, dead []int) int {
	hops := make([]int, v.Size())
	start := 0
	for slices.Contains(dead, start) {
		start++
	}
	queue, far, reached := []int{start}, 0, 1
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		far = hops[at]
		for _, w := range Watched(v, at, 0) {
			if w != start && hops[w] == 0 && !slices.Contains(dead, w) {
				hops[w] = hops[at] + 1
				reached++
				queue = append(queue, w)
			}
		}
	}
	if reached < v.Size()-len(dead) {
		return -1
	}
	return far
}

func TestWatchedOutsideView(t *testing.T) {
	v := View{Nodes: make([]Node, 3)}
	for _, r := range []int{-1, 3} {
		if w := Watched(v, r, 0); w != nil {
			t.Errorf("rank %d watches %v", r, w)
		}
	}
}

// TestNewcomerLinks: a newcomer links itself to all nodes that it would watch or that would watch it, also
// if another node enters with it or one leaves, and the number of these does not grow with the world.
func TestNewcomerLinks(t *testing.T) {
	const k, most = 6, 60
	for _, n := range []int{1, 2, 3, 7, 20, 100, 257, 1024, 4096} {
		links := NewcomerLinks(n, k)
		if len(links) > min(n, most) {
			t.Errorf("%d nodes: %d links, want at most %d", n, len(links), min(n, most))
		}
		// The ranks after a change: gone is a rank that leaves, n for none. The rank of the newcomer
		// is size-2 if another one enters behind it.
		check := func(size, rank, gone int) {
			for _, near := range append(neighbors(size, rank, k, +1), neighbors(size, rank, k, -1)...) {
				old := near
				if near >= gone {
					old++
				}
				if old < n && near < size-1 && !slices.Contains(links, old) {
					t.Errorf("%d nodes, rank %d of %d, rank %d gone: no link to rank %d", n, rank, size, gone, old)
				}
			}
		}
		check(n+1, n, n)
		check(n+2, n, n)
		check(n+2, n+1, n)
		for gone := range min(n, 300) {
			if n > 1 {
				check(n, n-1, gone*n/min(n, 300))
			}
		}
	}
}
