package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/topology"
)

// hopsOn returns the hops in a sparse topology with relays.
func hopsOn(t *testing.T, name string, size int) Hops {
	t.Helper()
	shape, err := topology.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	g := shape.Graph(size)
	routes := make([]*topology.Routes, size)
	for from := range routes {
		routes[from] = g.Routes(from, topology.Broken{})
	}
	return func(from, to int) int { return routes[from].Hops(to) }
}

// TestBruckForShortBlocks: an all-to-all of short blocks takes the algorithm with few messages, over links and
// on sparse topologies, and one of long blocks the algorithm that sends each block once. Blocks of different
// lengths can only be sent one by one.
func TestBruckForShortBlocks(t *testing.T) {
	const size = 32
	tuners := map[string]*Tuner{
		"tcp": New(TCP(false)), "tls": New(TCP(true)), "quic": New(QUIC()),
		"hypercube": New(TCP(true)).Over(hopsOn(t, "hypercube", size)),
		"k-regular": New(TCP(true)).Over(hopsOn(t, "k-regular:4", size)),
	}
	for name, tuner := range tuners {
		for _, test := range []struct {
			block  int
			uneven bool
			want   string
		}{
			{8, false, "bruck"}, {256, false, "bruck"}, {8, true, "pairwise"}, {1 << 20, false, "pairwise"},
		} {
			need := Need{Collective: plan.AllToAll, Size: size, Bytes: test.block * size, Blocks: true, Uneven: test.uneven}
			if got := tuner.Choose(need).Algorithm.Name; got != test.want {
				t.Errorf("%s: blocks of %d bytes, uneven %v: %s, want %s", name, test.block, test.uneven, got, test.want)
			}
		}
	}
}
