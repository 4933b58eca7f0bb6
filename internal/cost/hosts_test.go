package cost

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// world returns Hosts with the numbers of ranks in shape, consecutive or dealt round-robin.
func world(deal bool, shape ...int) plan.Hosts {
	var names []string
	for host, n := range shape {
		for range n {
			names = append(names, fmt.Sprint("host ", host))
		}
	}
	if deal {
		names = nil
		for row := range slices.Max(shape) {
			for host, n := range shape {
				if row < n {
					names = append(names, fmt.Sprint("host ", host))
				}
			}
		}
	}
	return plan.HostsOf(names)
}

// alike returns Hosts with the same number of ranks each.
func alike(deal bool, hosts, ranks int) plan.Hosts {
	return world(deal, slices.Repeat([]int{ranks}, hosts)...)
}

// worlds returns Hosts of many kinds.
func worlds() (list []plan.Hosts) {
	for _, deal := range []bool{false, true} {
		list = append(list,
			world(deal, 2, 1), alike(deal, 2, 2), world(deal, 4, 4, 3), world(deal, 1, 5), alike(deal, 4, 4), world(deal, 8, 8, 1, 8))
	}
	return append(list, alike(false, 8, 8), alike(true, 3, 30), alike(false, 30, 5))
}

// fewWorlds returns some of them.
func fewWorlds() []plan.Hosts {
	return []plan.Hosts{world(true, 2, 1), alike(false, 4, 4), world(true, 8, 8, 1, 8), alike(false, 9, 8)}
}

func TestHostChoicesKeepTheRules(t *testing.T) {
	for _, h := range worlds() {
		tuner := NewOnHosts(Pipes(), TCP(true), h)
		single := make(map[figureKey]bool)
		for _, n := range needs(h.Size()) {
			c := tuner.Choose(n)
			if problem := wrongOn(h, c, n, single); problem != "" {
				t.Errorf("%v: %+v: %s", h, n, problem)
			}
		}
	}
}

// TestHostChoicesAreTheSameEverywhere: Tuners of different ranks, asked in different order,
// return the same choices.
func TestHostChoicesAreTheSameEverywhere(t *testing.T) {
	for _, h := range fewWorlds() {
		list := needs(h.Size())
		a, b := NewOnHosts(Pipes(), TCP(false), h), NewOnHosts(Pipes(), TCP(false), h)
		chosen := make([]Choice, len(list))
		for i, n := range list {
			chosen[i] = a.Choose(n)
		}
		for i, n := range slices.Backward(list) {
			if got := b.Choose(n); !same(got, chosen[i]) {
				t.Errorf("%+v: %s on %d channels, and %s on %d", n, got.Algorithm.Name, got.Channels, chosen[i].Algorithm.Name, chosen[i].Channels)
			}
		}
	}
}

func isHierarchical(c Choice, n Need) bool { return c.Index >= len(plan.Algorithms(n.Collective)) }

// TestHierarchyWhereItIsCheaper: a long vector does not cross hosts through a single rank, or
// from rank to rank of different hosts. Where hierarchy gains nothing, plans are flat.
func TestHierarchyWhereItIsCheaper(t *testing.T) {
	for _, c := range []plan.Collective{plan.Broadcast, plan.Reduction, plan.AllReduce, plan.AllGather} {
		long := Need{Collective: c, Size: 12, Bytes: 64 << 20}
		short := Need{Collective: c, Size: 12, Bytes: 8}
		for _, net := range []Network{TCP(true), TCP(false), QUIC()} {
			for _, h := range []plan.Hosts{alike(true, 3, 4), alike(false, 3, 4)} {
				if got := NewOnHosts(Pipes(), net, h).Choose(long); !isHierarchical(got, long) {
					t.Errorf("%v of a long vector on %v: %s", c, h, got.Algorithm.Name)
				}
			}
			for _, h := range []plan.Hosts{alike(true, 12, 1), alike(true, 1, 12)} {
				if got := NewOnHosts(Pipes(), net, h).Choose(long); isHierarchical(got, long) {
					t.Errorf("%v on %v: %s", c, h, got.Algorithm.Name)
				}
			}
			if got := NewOnHosts(net, net, alike(false, 3, 4)).Choose(short); c != plan.AllGather && isHierarchical(got, short) {
				t.Errorf("%v of a short vector, where all algorithms cost the same: %s", c, got.Algorithm.Name)
			}
		}
	}
}

// TestHierarchyIsChosenByItsCost: the choice is the cheapest of flat and hierarchical plans.
func TestHierarchyIsChosenByItsCost(t *testing.T) {
	for _, h := range worlds() {
		tuner := NewOnHosts(Pipes(), TCP(true), h)
		for bytes := 8; bytes <= 64<<20; bytes *= 16 {
			n := Need{Collective: plan.AllReduce, Size: h.Size(), Bytes: bytes * 3 / 2}
			got := tuner.Choose(n)
			for i, a := range plan.AlgorithmsOn(n.Collective, h) {
				if c, ok := tuner.best(i, a, n); ok && a.Fits(n.Size) && !a.Placed && !(a.Apart && tuner.together) && c.Seconds < got.Seconds {
					t.Errorf("%v, %d bytes: %s takes %v s, less than the choice %s, which takes %v s", h, n.Bytes, a.Name, c.Seconds, got.Algorithm.Name, got.Seconds)
				}
			}
		}
	}
}

// TestOneNetwork: if both classes have the same Network, hosts do not matter, and the cost of a
// flat plan is about that of a Tuner without hosts: not higher, except by extrapolation, and lower
// if messages differ in length, since a Tuner counts every message of a row as the longest of all.
func TestOneNetwork(t *testing.T) {
	net := TCP(true)
	for _, h := range worlds() {
		on, flat := NewOnHosts(net, net, h), New(net)
		for _, c := range plan.Collectives() {
			for _, bytes := range []int{8, 1 << 12, 1 << 18, 1 << 26} {
				n := Need{Collective: c, Size: h.Size(), Bytes: bytes}
				for i, a := range plan.Algorithms(c) {
					if !a.Fits(n.Size) || a.Shared {
						continue
					}
					got, _ := on.best(i, a, n)
					want, _ := flat.best(i, a, n)
					if got.Seconds > 1.5*want.Seconds || got.Seconds < 0.2*want.Seconds {
						t.Errorf("%v/%s of %d ranks, %d bytes: %.3g s, elsewhere %.3g s", c, a.Name, n.Size, bytes, got.Seconds, want.Seconds)
					}
				}
			}
		}
	}
}

func TestMoreTakesLongerOnHosts(t *testing.T) {
	for _, h := range fewWorlds() {
		tuner := NewOnHosts(Pipes(), TCP(true), h)
		for _, c := range plan.Collectives() {
			last := 0.0
			for bytes := 1; bytes <= 1<<30; bytes *= 2 {
				s := tuner.Choose(Need{Collective: c, Size: h.Size(), Bytes: bytes}).Seconds
				if s < last {
					t.Errorf("%v on %v: %d bytes take %v s, half of it %v s", c, h, bytes, s, last)
				}
				last = s
			}
		}
	}
}

// TestRowsBeyond compares the rows that are estimated for many ranks with those of their plans.
func TestRowsBeyond(t *testing.T) {
	for _, h := range []plan.Hosts{alike(true, 10, 8), alike(false, 33, 3), alike(false, 2, 40)} {
		on := &hostTuner{nets: [...]Network{Pipes(), TCP(true)}, hosts: h}
		for _, c := range plan.Collectives() {
			for i, a := range plan.AlgorithmsOn(c, h) {
				if a.Shared || !a.Fits(h.Size()) {
					continue
				}
				got, want := on.rowsBeyond(c, i), on.rows(h, a, a.Plans(h.Size(), 0))
				for k := range got {
					if k == 1 && c == plan.Barrier {
						continue // The row has no bytes.
					}
					// The short row is dominated by latency, the long one by bytes.
					value := func(r row) float64 { return r.messages[near]*1.5 + r.messages[far]*8 }
					if k == 1 {
						value = func(r row) float64 { return r.carried[near]*0.2 + r.carried[far] }
					}
					if g, w := value(got[k]), value(want[k]); g < 0.6*w-20 || g > 1.6*w+20 {
						t.Errorf("%v/%s, %d hosts, %d ranks: row %d is about %.3g (%v), want %.3g (%v)", c, a.Name, h.Count(), h.Size(), k, g, got[k], w, want[k])
					}
				}
			}
		}
	}
}

func TestGrown(t *testing.T) {
	type pair = [classes]float64
	at := func(depth int, messages pair) sample {
		return sample{[2]row{{messages: messages}, {carried: messages}}, depth}
	}
	for _, test := range []struct {
		a, b, c sample
		n       int
		want    pair
	}{
		{at(2, pair{2, 1}), at(4, pair{4, 1}), at(8, pair{8, 1}), 16, pair{16, 1}},
		{at(2, pair{1, 0}), at(5, pair{3, 1}), at(11, pair{7, 3}), 64, pair{63, 31}},
		{at(7, pair{1, 5}), at(9, pair{2, 5}), at(11, pair{3, 5}), 16, pair{4, 5}},
		{at(7, pair{1, 5}), at(9, pair{2, 4}), at(11, pair{4, 3}), 100, pair{12, 3}},
		{at(5, pair{5, 4}), at(5, pair{5, 2}), at(5, pair{5, 1}), 99, pair{5, 1}},
	} {
		got := grown(test.a, test.b, test.c, test.n)
		if got[0].messages != test.want || got[1].carried != test.want {
			t.Errorf("%v, %v, %v and so on to %d: %v, want %v", test.a, test.b, test.c, test.n, got, test.want)
		}
	}
}

func BenchmarkChooseFirstOnHosts(b *testing.B) {
	for _, h := range []plan.Hosts{alike(false, 2, 4), alike(false, 8, 8), alike(false, 125, 8)} {
		for _, c := range plan.Collectives() {
			b.Run(fmt.Sprintf("%v/%dx%d", c, h.Count(), h.Most()), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					NewOnHosts(Pipes(), TCP(true), h).Choose(Need{Collective: c, Size: h.Size(), Bytes: 1 << 20})
				}
			})
		}
	}
}
