package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// linkedAt returns the Linked of ranks that are linked to others at some distances.
func linkedAt(size int, distances ...int) Linked {
	return func(rank int) (ranks []int) {
		for _, d := range distances {
			d %= size
			ranks = append(ranks, (rank+d)%size, (rank+size-d)%size)
		}
		return ranks
	}
}

// watchLinks are links at distances like those of watches: between all of few ranks.
func watchLinks(size int) Linked {
	if size <= 13 {
		return linkedAt(size, 1, 2, 3, 4, 5, 6)
	}
	return linkedAt(size, 1, 2, 4, 8, 16, 32)
}

func noLinks(int) []int { return nil }

// TestFirstUseOfLinks: a gather by direct messages to the root is as fast as one over a tree. The first
// use of the links decides, unless all ranks are linked, the topology is sparse, or links need no handshake.
func TestFirstUseOfLinks(t *testing.T) {
	const size = 46
	need := Need{Collective: plan.Gather, Size: size, Bytes: 32 << 10, Blocks: true}
	near := func(int, int) int { return 1 }
	free := QUIC()
	free.Handshake = 0
	all := func(int) (ranks []int) { return everyRank(size) }
	for name, test := range map[string]struct {
		tuner *Tuner
		want  string
	}{
		"watches":      {New(QUIC()).Linked(watchLinks(size)), "binomial"},
		"all linked":   {New(QUIC()).Linked(all), "direct"},
		"eager":        {New(QUIC()).Linked(nil), "direct"},
		"sparse":       {New(QUIC()).Over(near).Linked(watchLinks(size)), "direct"},
		"no handshake": {New(free).Linked(watchLinks(size)), "direct"},
	} {
		if got := test.tuner.Choose(need).Algorithm.Name; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestFirstUseIsFree: ranks in memory, ranks that share hosts, ranks of a sparse topology and ranks that are linked need no handshakes.
func TestFirstUseIsFree(t *testing.T) {
	const size = 16
	near := func(int, int) int { return 1 }
	one := plan.HostsOf(make([]string, size))
	for name, pair := range map[string][2]*Tuner{
		"memory": {New(Local()), New(Local()).Linked(noLinks)},
		"pipes":  {New(Pipes()), New(Pipes()).Linked(noLinks)},
		"sparse": {New(QUIC()).Over(near), New(QUIC()).Over(near).Linked(noLinks)},
		"linked": {New(TCP(true)), New(TCP(true)).Linked(linkedAt(size, 1, 2, 3, 4, 5, 6, 7, 8))},
		"host":   {NewOnHosts(Pipes(), TCP(true), one), NewOnHosts(Pipes(), TCP(true), one).Linked(noLinks)},
	} {
		without, with := pair[0], pair[1]
		for _, n := range needs(size) {
			if a, b := without.Choose(n), with.Choose(n); !same(a, b) {
				t.Errorf("%s: %+v: %s in %v s, and %s in %v s with links on demand", name, n, a.Algorithm.Name, a.Seconds, b.Algorithm.Name, b.Seconds)
			}
			for i := range plan.AlgorithmsOn(n.Collective, with.hosts) {
				if a, ok := without.ChoiceWith(n, i, 0); ok {
					if b, _ := with.ChoiceWith(n, i, 0); a.Seconds != b.Seconds {
						t.Errorf("%s: %+v by %s: %v s, and %v s with links on demand", name, n, a.Algorithm.Name, a.Seconds, b.Seconds)
					}
				}
			}
		}
	}
}

// TestFirstUseIsBounded: the first use of links selects no algorithm that is more than firstPart slower with links, and does not
// replace an algorithm by another one of the same time.
func TestFirstUseIsBounded(t *testing.T) {
	changed := 0
	for _, net := range []Network{TCP(false), TCP(true), QUIC()} {
		for _, size := range []int{2, 4, 8, 13, 24, 32, 46, 66, 100, 128, 192, 256} {
			for _, crowd := range []uint8{1, Crowd(size, 2)} {
				without, with := New(net).Crowded(crowd), New(net).Crowded(crowd).Linked(watchLinks(size))
				for _, n := range needs(size) {
					a, b := without.Choose(n), with.Choose(n)
					if a.Index == b.Index {
						if a.Channels != b.Channels {
							t.Errorf("%+v by %s: %d channels, and %d with links on demand", n, a.Algorithm.Name, a.Channels, b.Channels)
						}
						continue
					}
					changed++
					n.Bytes = middle(n.Bytes)
					linked, _ := without.ChoiceWith(n, b.Index, b.Channels)
					if linked.Seconds > a.Seconds*(1+firstPart) {
						t.Errorf("%+v: %s in %.3g s in place of %s in %.3g s", n, b.Algorithm.Name, linked.Seconds, a.Algorithm.Name, a.Seconds)
					}
					if few, many := with.countNewLinks(b.Algorithm, size), with.countNewLinks(a.Algorithm, size); few >= many {
						t.Errorf("%+v: %s needs %d links more, %s %d", n, b.Algorithm.Name, few, a.Algorithm.Name, many)
					}
					if size <= 13 {
						t.Errorf("%+v: %s in place of %s, though all ranks are linked", n, b.Algorithm.Name, a.Algorithm.Name)
					}
				}
			}
		}
	}
	if changed == 0 {
		t.Error("the first use of links changes no choice")
	}
}

// TestNewLinks counts the links that plans need.
func TestNewLinks(t *testing.T) {
	algorithm := func(c plan.Collective, h plan.Hosts, name string) plan.Algorithm {
		for _, a := range plan.AlgorithmsOn(c, h) {
			if a.Name == name {
				return a
			}
		}
		t.Fatalf("%v has no %s", c, name)
		return plan.Algorithm{}
	}
	const size = 32
	flat, hosts := plan.Hosts{}, alike(false, 4, 8)
	for _, test := range []struct {
		collective plan.Collective
		hosts      plan.Hosts
		name       string
		linked     Linked
		want       int
	}{
		{plan.AllToAll, flat, "pairwise", noLinks, 31},
		{plan.AllToAll, flat, "pairwise", linkedAt(size, 1, 2, 4, 8, 16), 22},
		{plan.AllToAll, flat, "bruck", noLinks, 9},
		{plan.AllToAll, flat, "bruck", linkedAt(size, 1, 2, 4, 8, 16), 0},
		{plan.Gather, flat, "direct", linkedAt(size, 1), 29},
		{plan.AllGather, flat, "ring", noLinks, 2},
		{plan.AllReduce, flat, "recursive-doubling", noLinks, 5},
		{plan.AllToAll, hosts, "pairwise", noLinks, 24},
		{plan.AllToAll, hosts, "pairwise", linkedAt(size, 16), 23},
		{plan.AllGather, hosts, "hosts-leader", noLinks, 3},
	} {
		tuner := New(TCP(true)).Linked(test.linked)
		tuner.hosts = test.hosts
		if got := tuner.countNewLinks(algorithm(test.collective, test.hosts, test.name), size); got != test.want {
			t.Errorf("%v by %s, hosts %v: %d new links, want %d", test.collective, test.name, test.hosts, got, test.want)
		}
	}
}
