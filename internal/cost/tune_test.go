package cost

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// networks returns the networks of nodes, and extreme ones.
func networks() map[string]Network {
	return map[string]Network{
		"local":   Local(),
		"wide":    QUIC(),
		"slow":    {Latency: 0.05, Message: 1e-5, Byte: 1e-7, Reduce: 1e-9, Copy: 1e-9},
		"nothing": {},
	}
}

// needs returns all needs of a world of the given size.
func needs(size int) (list []Need) {
	for _, c := range plan.Collectives() {
		for bytes := 0; bytes <= 1<<30; bytes = max(1, bytes*8) {
			n := Need{Collective: c, Size: size, Bytes: bytes}
			switch c {
			case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
				n.Blocks = true
			case plan.Scan, plan.ExclusiveScan:
				n.Ordered = true
			}
			list = append(list, n)
			if c.Reduces() && !n.Ordered {
				n.Ordered = true
				list = append(list, n)
			}
		}
	}
	return list
}

// TestChooseKeepsTheRules checks every choice against the requirements of its Need.
func TestChooseKeepsTheRules(t *testing.T) {
	for name, net := range networks() {
		sizes := []int{64, 65, 100, 300}
		for size := 1; size <= 40; size++ {
			sizes = append(sizes, size)
		}
		for _, size := range sizes {
			tuner := New(net)
			single := make(map[figureKey]bool)
			for _, n := range needs(size) {
				c := tuner.Choose(n)
				if problem := wrong(c, n, single); problem != "" {
					t.Errorf("%s: %+v: %s", name, n, problem)
				}
			}
		}
	}
}

// wrong describes an error in a choice, or returns "". It caches facts about plans in single.
func wrong(c Choice, n Need, single map[figureKey]bool) string {
	return wrongOn(plan.Hosts{}, c, n, single)
}

// wrongOn is wrong for ranks on Hosts.
func wrongOn(h plan.Hosts, c Choice, n Need, single map[figureKey]bool) string {
	list := plan.AlgorithmsOn(n.Collective, h)
	if c.Index < 0 || c.Index >= len(list) || list[c.Index].Name != c.Algorithm.Name {
		return fmt.Sprintf("index %d is not that of %s", c.Index, c.Algorithm.Name)
	}
	switch {
	case !c.Algorithm.Fits(n.Size):
		return c.Algorithm.Name + " does not fit"
	case n.Ordered && !c.Algorithm.Ordered:
		return c.Algorithm.Name + " is not ordered"
	case c.Channels < 1 || c.Channels > ChannelsMax:
		return fmt.Sprintf("%d channels", c.Channels)
	case !(c.Seconds >= 0):
		return fmt.Sprintf("%v seconds", c.Seconds)
	case !n.Blocks || c.Channels == 1:
		return ""
	}
	key := figureKey{n.Collective, c.Index, n.Size}
	is, known := single[key]
	if !known {
		size := n.Size
		if h.Size() == 0 {
			size = min(size, 100)
		}
		is = notSingle(n.Collective, c.Algorithm, size) == ""
		single[key] = is
	}
	if !is {
		return fmt.Sprintf("%d channels, though %s sends several blocks in one message", c.Channels, c.Algorithm.Name)
	}
	return ""
}

// TestChooseIsTheSameEverywhere: Tuners of different nodes, asked in different order, return
// the same choices, for all lengths between two powers of two.
func TestChooseIsTheSameEverywhere(t *testing.T) {
	for _, size := range []int{2, 3, 8, 13, 100} {
		list := needs(size)
		a, b := New(QUIC()), New(QUIC())
		chosen := make([]Choice, len(list))
		for i, n := range list {
			chosen[i] = a.Choose(n)
		}
		for i, n := range slices.Backward(list) {
			if got := b.Choose(n); !same(got, chosen[i]) {
				t.Errorf("%+v: %s on %d channels, and %s on %d", n, got.Algorithm.Name, got.Channels, chosen[i].Algorithm.Name, chosen[i].Channels)
			}
			if n.Bytes == 0 {
				continue
			}
			n.Bytes += n.Bytes / 2
			if got := b.Choose(n); !same(got, chosen[i]) {
				t.Errorf("%+v: %s on %d channels, but a different choice for a shorter vector", n, got.Algorithm.Name, got.Channels)
			}
		}
	}
}

func same(a, b Choice) bool {
	return a.Index == b.Index && a.Channels == b.Channels && a.Seconds == b.Seconds
}

// TestShortVectorsTakeFewMessages: for short vectors the choice has a short chain of messages.
func TestShortVectorsTakeFewMessages(t *testing.T) {
	for name, net := range map[string]Network{"local": Local(), "wide": QUIC()} {
		for _, size := range []int{2, 3, 5, 8, 13, 16, 32, 64, 100} {
			for _, c := range plan.Collectives() {
				choice := New(net).Choose(Need{Collective: c, Size: size, Bytes: 8})
				// ⌈log2 n⌉ in each direction, and a round for sizes that are not a power of
				// two.
				rounds := 2
				for p := 1; p < size; p *= 2 {
					rounds += 2
				}
				if got := depth(choice.Algorithm, choice.Algorithm.Plans(size, 0)); got > rounds {
					t.Errorf("%s: 8 bytes, %d ranks, %v: %s has a depth of %d, want at most %d", name, size, c, choice.Algorithm.Name, got, rounds)
				}
				if choice.Channels != 1 {
					t.Errorf("%s: 8 bytes, %d ranks, %v: %d channels", name, size, c, choice.Channels)
				}
			}
		}
	}
}

// TestLongVectorsMoveFewBytes: for long vectors the choice minimizes the bytes of the busiest rank.
func TestLongVectorsMoveFewBytes(t *testing.T) {
	most := map[plan.Collective]float64{ // vectors
		plan.Broadcast: 2, plan.Reduction: 2, plan.AllReduce: 2, plan.Gather: 1,
		plan.AllGather: 1, plan.Scatter: 1, plan.ReduceScatter: 1, plan.AllToAll: 1,
	}
	for name, net := range map[string]Network{"local": Local(), "wide": QUIC()} {
		for _, size := range []int{2, 3, 5, 8, 13, 16, 40} {
			for c, vectors := range most {
				choice := New(net).Choose(Need{Collective: c, Size: size, Bytes: 256 << 20})
				if got := measure(c, choice.Algorithm, size).moved; got > vectors+1e-9 {
					t.Errorf("%s: 256 MiB, %d ranks, %v: %s moves %.2f vectors, want at most %v", name, size, c, choice.Algorithm.Name, got, vectors)
				}
			}
		}
	}
}

// TestMoreTakesLonger: the time that the model predicts grows with the length.
func TestMoreTakesLonger(t *testing.T) {
	for name, net := range networks() {
		for _, size := range []int{2, 7, 16, 100} {
			tuner := New(net)
			for _, c := range plan.Collectives() {
				last := 0.0
				for bytes := 1; bytes <= 1<<30; bytes *= 2 {
					s := tuner.Choose(Need{Collective: c, Size: size, Bytes: bytes}).Seconds
					if s < last {
						t.Errorf("%s: %v of %d ranks: %d bytes take %v s, less than half of it", name, c, size, bytes, s)
					}
					last = s
				}
			}
		}
	}
}

func TestChooseAgainDoesNotAllocate(t *testing.T) {
	tuner := New(QUIC())
	n := Need{Collective: plan.AllReduce, Size: 16, Bytes: 1 << 20}
	tuner.Choose(n)
	if got := testing.AllocsPerRun(100, func() { tuner.Choose(n) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

func BenchmarkChooseAgain(b *testing.B) {
	tuner := New(QUIC())
	n := Need{Collective: plan.AllReduce, Size: 16, Bytes: 1 << 20}
	b.ReportAllocs()
	for b.Loop() {
		tuner.Choose(n)
	}
}

func BenchmarkChooseFirst(b *testing.B) {
	for _, size := range []int{8, 64, 256, 1000} {
		for _, c := range plan.Collectives() {
			b.Run(fmt.Sprintf("%v/%d", c, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					New(QUIC()).Choose(Need{Collective: c, Size: size, Bytes: 1 << 20})
				}
			})
		}
	}
}
