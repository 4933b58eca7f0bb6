package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// forEachOn runs a subtest for each hierarchical algorithm of each collective.
// Its argument makes the algorithm for Hosts.
func forEachOn(t *testing.T, f func(t *testing.T, c Collective, on func(Hosts) Algorithm)) {
	for _, c := range Collectives() {
		for i, a := range Hierarchical(c, Hosts{}) {
			t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) {
				f(t, c, func(h Hosts) Algorithm { return Hierarchical(c, h)[i] })
			})
		}
	}
}

// hostsOf are Hosts of the host of each rank.
func hostsOf(of []int) Hosts {
	names := make([]string, len(of))
	for rank, host := range of {
		names[rank] = fmt.Sprint(host)
	}
	return HostsOf(names)
}

// partitions calls f for all ways to divide size ranks among hosts.
func partitions(size int, f func(of []int)) {
	of := make([]int, size)
	var place func(rank, hosts int)
	place = func(rank, hosts int) {
		if rank == size {
			f(of)
			return
		}
		for host := range hosts + 1 {
			of[rank] = host
			place(rank+1, max(hosts, host+1))
		}
	}
	place(0, 0)
}

// shapes calls f for all ways to write size as a sum that begins with the
// largest: the numbers of ranks on each host.
func shapes(size int, f func(shape []int)) {
	var add func(shape []int, left, most int)
	add = func(shape []int, left, most int) {
		if left == 0 {
			f(shape)
		}
		for n := min(left, most); n > 0; n-- {
			add(append(shape, n), left-n, n)
		}
	}
	add(nil, size, size)
}

// inRow puts ranks on hosts of a shape in consecutive order, and dealt round-robin.
func inRow(shape []int) (of []int) {
	for host, n := range shape {
		for range n {
			of = append(of, host)
		}
	}
	return of
}

func dealt(shape []int) (of []int) {
	for row := 0; len(of) < len(inRow(shape)); row++ {
		for host, n := range shape {
			if row < n {
				of = append(of, host)
			}
		}
	}
	return of
}

// groupings calls f for the Hosts to prove plans for: all Hosts of a few ranks, all sizes of
// hosts in several orders of ranks up to 16, and random ones.
func groupings(f func(h Hosts)) {
	rng := rand.New(rand.NewPCG(7, 11))
	for size := 1; size <= everyPartition; size++ {
		partitions(size, func(of []int) { f(hostsOf(of)) })
	}
	for size := everyPartition + 1; size <= everyShape; size++ {
		shapes(size, func(shape []int) {
			f(hostsOf(inRow(shape)))
			f(hostsOf(dealt(shape)))
			mixed := inRow(shape)
			rng.Shuffle(size, func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			f(hostsOf(mixed))
		})
	}
	for range randomGroupings {
		of := make([]int, 1+rng.IntN(130))
		hosts := 1 + rng.IntN(len(of))
		for rank := range of {
			of[rank] = rng.IntN(hosts)
			if rank > 0 && rng.IntN(3) > 0 {
				of[rank] = of[rank-1]
			}
		}
		f(hostsOf(of))
	}
}

func TestEveryHierarchicalAlgorithmIsRight(t *testing.T) {
	t.Parallel()
	forEachOn(t, func(t *testing.T, c Collective, on func(Hosts) Algorithm) {
		groupings(func(h Hosts) {
			a := on(h)
			for _, root := range rootsOn(c, h) {
				checkAlgorithm(t, c, a, h.Size(), root)
			}
		})
	})
}

// rootsOn returns the roots to try: all for a few ranks, else some.
func rootsOn(c Collective, h Hosts) []int {
	switch size := h.Size(); {
	case !c.Rooted():
		return []int{0}
	case size > 8:
		return []int{0, size / 2, size - 1}
	default:
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		return all
	}
}

// The properties in the table hold for all Hosts.
func TestHierarchicalAlgorithmsKeepTheirPromises(t *testing.T) {
	t.Parallel()
	promised := make(map[string]int)
	forEachOn(t, func(t *testing.T, c Collective, on func(Hosts) Algorithm) {
		groupings(func(h Hosts) {
			a := on(h)
			if h.Size() > 33 || !a.Canonical {
				return
			}
			for _, root := range rootsOn(c, h) {
				got, err := Expression(c, root, a.Plans(h.Size(), root))
				if want := canonical(h.Size()); err != nil || got != want {
					t.Fatalf("%v, root %d: got %s (%v), want %s", h, root, got, err, want)
				}
			}
			if h.Crowded() {
				promised[a.Name]++
			}
		})
	})
	for _, name := range []string{"hosts-leader", "hosts-rabenseifner", "hosts-recursive-doubling", "hosts-binomial"} {
		if promised[name] == 0 {
			t.Errorf("no %s is canonical", name)
		}
	}
}

// The executor, which shares no code with Check, agrees.
func TestHierarchicalExecution(t *testing.T) {
	t.Parallel()
	forEachOn(t, func(t *testing.T, c Collective, on func(Hosts) Algorithm) {
		for _, h := range someHosts() {
			a := on(h)
			for _, root := range rootsOn(c, h) {
				for seed := range uint64(2) {
					if err := right(c, a, root, a.Plans(h.Size(), root), seed); err != nil {
						t.Fatalf("%v, root %d, seed %d: %v", h, root, seed, err)
					}
				}
			}
		}
	})
}

// someHosts returns equal and different Hosts, in and out of order, and with a single rank.
func someHosts() (list []Hosts) {
	for _, of := range [][]int{
		{0, 0, 1}, {0, 1, 1, 0}, {0, 0, 1, 1}, {0, 1, 0, 1, 1}, {0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1, 1, 2, 2},
		{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 2}, {0, 0, 0}, {0, 1, 2},
	} {
		list = append(list, hostsOf(of))
	}
	return list
}

func TestHierarchicalInPlace(t *testing.T) {
	t.Parallel()
	forEachOn(t, func(t *testing.T, c Collective, on func(Hosts) Algorithm) {
		groupings(func(h Hosts) {
			if h.Size() > everyPartition && h.Size()%7 > 0 {
				return
			}
			checkInPlace(t, c, on(h), h.Size(), 0, func(int) bool { return true })
			checkInPlace(t, c, on(h), h.Size(), 0, func(rank int) bool { return rank%3 != 1 })
		})
	})
}

func TestCheckCatchesHierarchicalMutants(t *testing.T) {
	t.Parallel()
	kinds := make(census)
	forEachOn(t, func(t *testing.T, c Collective, on func(Hosts) Algorithm) {
		for _, h := range someHosts() {
			if h.Size() <= mutantSizes[len(mutantSizes)-1] && h.Crowded() {
				t.Logf("%v: %+v", h, kinds.try(t, c, on(h), h.Size()))
			}
		}
	})
	kinds.report(t)
}

// A fingerprint identifies an algorithm by its index, which must not depend on Hosts.
func TestHierarchicalAlgorithmsHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range Collectives() {
		want := AlgorithmsOn(c, Hosts{})
		names := make(map[string]bool)
		for i, a := range want {
			if names[a.Name] {
				t.Errorf("%v: the name %q is taken", c, a.Name)
			}
			names[a.Name] = true
			if i >= len(Algorithms(c)) && a.Fits(0) {
				t.Errorf("%v/%s fits a world without ranks", c, a.Name)
			}
		}
		for _, h := range someHosts() {
			got := AlgorithmsOn(c, h)
			for i, a := range got {
				if len(got) != len(want) || a.Name != want[i].Name {
					t.Fatalf("%v: with %v there are others", c, h)
				}
				if i >= len(Algorithms(c)) && (a.Fits(h.Size()) != h.Crowded() || a.Fits(h.Size()+1)) {
					t.Errorf("%v/%s: with %v it fits: %v", c, a.Name, h, a.Fits(h.Size()))
				}
			}
		}
	}
}

// traffic returns the vectors that ranks send to other hosts: the maximum of a rank, and the total.
func traffic(h Hosts, plans []Plan) (most, all float64) {
	for rank, p := range plans {
		sent := 0.0
		for _, round := range p.Rounds {
			for _, m := range round {
				if m.Kind == Send && !h.Same(rank, m.Peer) {
					sent += float64(m.A.Len()) / float64(p.Chunks)
				}
			}
		}
		most, all = max(most, sent), all+sent
	}
	return most, all
}

// With heads for every share a rank sends no more than its share to other hosts, and a host
// no more than each vector.
func TestHierarchicalTraffic(t *testing.T) {
	t.Parallel()
	const count, each = 6, 4
	h := hostsOf(dealt([]int{each, each, each, each, each, each}))
	share := float64(count-1) / count
	for _, test := range []struct {
		c         Collective
		name      string
		most, all float64
	}{
		{Broadcast, "hosts-chain", 1.0 / each, count - 1},
		{Reduction, "hosts-chain", 1.0 / each, count - 1},
		{AllReduce, "hosts-leader", 3, 3 * count},
		{AllReduce, "hosts-direct", 2 * share / each, 2 * share * count},
		{AllReduce, "hosts-circulant", 2 * share / each, 2 * share * count},
		{AllGather, "hosts-ring", share / each, share * count},
		{AllGather, "hosts-circulant", share / each, share * count},
		{ReduceScatter, "hosts-direct", share / each, share * count},
		{ReduceScatter, "hosts-ring", share / each, share * count},
	} {
		for _, a := range Hierarchical(test.c, h) {
			if a.Name != test.name {
				continue
			}
			most, all := traffic(h, a.Plans(h.Size(), 0))
			if most > test.most+1e-9 || all > test.all+1e-9 || all < 1 {
				t.Errorf("%v/%s: a rank sends %v vectors to other hosts, want at most %v; all send %v, want at most %v",
					test.c, a.Name, most, test.most, all, test.all)
			}
		}
	}
}
