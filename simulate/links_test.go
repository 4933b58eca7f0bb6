package simulate

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTorusPaths: a path has as many links as the distance, each from the host where the last one
// has ended, and ends at the destination.
func TestTorusPaths(t *testing.T) {
	top := topology{shape: torus, dimensions: []int{3, 4, 5}}
	hosts := 3 * 4 * 5
	strides := []int{20, 5, 1}
	for from := range hosts {
		for to := range hosts {
			path := top.path(nil, hosts, from, to)
			distance := 0
			for d, n := range top.dimensions {
				way := (to/strides[d]%n - from/strides[d]%n + n) % n
				distance += min(way, n-way)
			}
			at := from
			for _, l := range path {
				d, n := int(l)/2%3, top.dimensions[int(l)/2%3]
				if int(l)/2/3 != at {
					t.Fatalf("from %d to %d: link %d of host %d, want host %d", from, to, l, int(l)/2/3, at)
				}
				x := at / strides[d] % n
				next := (x + 1) % n
				if l%2 == 1 {
					next = (x + n - 1) % n
				}
				at += (next - x) * strides[d]
			}
			if at != to || len(path) != distance {
				t.Fatalf("from %d to %d: %d links to %d, want %d", from, to, len(path), at, distance)
			}
		}
	}
}

// TestTreePaths: a path uses the links of both hosts, and two links of the spine if they are at
// different leaves. All paths to a host use the same link to it.
func TestTreePaths(t *testing.T) {
	top := topology{shape: fatTree, hostsPerLeaf: 4, oversubscription: 2}
	const hosts = 10
	for from := range hosts {
		for to := range hosts {
			path := top.path(nil, hosts, from, to)
			want := []int32{int32(2 * from), int32(2*to + 1)}
			if from/4 != to/4 {
				want = slices.Insert(want, 1, int32(2*(hosts+from/4*2+to%2)), int32(2*(hosts+to/4*2+to%2)+1))
			}
			if !slices.Equal(path, want) {
				t.Errorf("from %d to %d: %v, want %v", from, to, path, want)
			}
			if most := int32(top.links(hosts)); slices.Max(path) >= most {
				t.Errorf("from %d to %d: link %d of %d", from, to, slices.Max(path), most)
			}
		}
	}
}

// TestQueueOrder compares a queue with a list that is sorted, for events at the same time as well.
func TestQueueOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var q queue
	var want []event
	now := picos(0)
	for i := range 20_000 {
		if rng.IntN(2) == 0 {
			e := event{at: now + rng.Int64N(1<<rng.IntN(40)), arg: int32(i)}
			q.add(e)
			want = append(want, e)
			continue
		}
		slices.SortStableFunc(want, func(a, b event) int { return int(max(-1, min(1, a.at-b.at))) })
		e, ok := q.next()
		if ok != (len(want) > 0) || ok && e != want[0] {
			t.Fatalf("event %d: got %v, %v, want the first of %d", i, e, ok, len(want))
		}
		if ok {
			want, now = want[1:], e.at
		}
	}
}
